"""Shards in this process. They show, without Ray, what does not depend on how shards run."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from edgeflock.server.descent import ShardStatus, VectorState
from edgeflock.server.shards.sharded import Order, Shard


class InProcess:
    """A `Placement` in this process."""

    def __init__(self) -> None:
        self.shards: list[Shard] = []

    @property
    def status(self) -> list[ShardStatus]:
        return [
            ShardStatus(shard.part.theta.size, shard.part.nbytes, "", os.getpid()) for shard in self.shards
        ]

    def begin(self, states: Sequence[VectorState]) -> None:
        self.shards = [Shard(state) for state in states]

    def send(self, orders: Mapping[int, Sequence[Order]]) -> None:
        self.ask(orders)

    def ask(self, orders: Mapping[int, Sequence[Order]]) -> dict[int, Any]:
        return {shard: self.shards[shard].execute(queue) for shard, queue in orders.items()}

    def check(self) -> None:
        """Do nothing: shards in this process are never lost."""

    def close(self) -> None:
        self.shards = []
