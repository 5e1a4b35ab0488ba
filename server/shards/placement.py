"""Where shards are: the seam between what is sent to them and what runs them.

An order is the name of something that a part does (descent/part.py) and what it is told for it. A shard
takes orders one after the other, as they were sent, and answers with what the last of them comes to.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from edgeflock.server.descent import Part, ShardStatus, VectorState

Order = tuple[str, tuple[Any, ...]]


class Placement(Protocol):
    """Runs shards. Once one of them is gone, `ask` and `check` raise descent.Lost until the next `begin`."""

    @property
    def standing(self) -> Sequence[ShardStatus]: ...

    def begin(self, states: Sequence[VectorState]) -> None:
        """New shards, one of each state, in the place of those before. Raises VectorsLost."""

    def send(self, orders: Mapping[int, Sequence[Order]]) -> None:
        """To these shards. It does not wait for them, and never fails."""

    def ask(self, orders: Mapping[int, Sequence[Order]]) -> dict[int, Any]:
        """The same; what the last order of each comes to."""

    def check(self) -> None:
        """Raise, if it is known by now."""

    def close(self) -> None: ...


class Shard:
    """One part of the parameters, and whoever has it."""

    def __init__(self, state: VectorState) -> None:
        """The state is copied: what came from elsewhere may be read only."""
        memory = replace(
            state.memory,
            numbers=_own(state.memory.numbers),
            gathered=_own(state.memory.gathered),
        )
        self.part = Part(
            state._replace(theta=np.array(state.theta), average=_own(state.average), memory=memory)
        )

    def take(self, orders: Sequence[Order]) -> Any:
        """What the last of them comes to."""
        answer = None
        for name, told in orders:
            found = getattr(self.part, name)
            answer = found(*told) if callable(found) else found
        return answer


def _own(vector: Any) -> Any:
    return None if vector is None else np.array(vector)


class Here:
    """Shards in this process: what is the same however shards are run can be seen without any Ray."""

    def __init__(self) -> None:
        self.shards: list[Shard] = []

    @property
    def standing(self) -> list[ShardStatus]:
        return [
            ShardStatus(shard.part.theta.size, shard.part.nbytes, "", os.getpid()) for shard in self.shards
        ]

    def begin(self, states: Sequence[VectorState]) -> None:
        self.shards = [Shard(state) for state in states]

    def send(self, orders: Mapping[int, Sequence[Order]]) -> None:
        self.ask(orders)

    def ask(self, orders: Mapping[int, Sequence[Order]]) -> dict[int, Any]:
        return {shard: self.shards[shard].take(those) for shard, those in orders.items()}

    def check(self) -> None:
        """Nothing gets lost here."""

    def close(self) -> None:
        self.shards = []
