"""The data shards of a device: in a run of tasks, the server selects the next batches' shard."""

from collections.abc import Sequence

from edgeflock.client.backends import Backend
from edgeflock.client.data import Batches
from edgeflock.client.data.batcher import Batch
from edgeflock.shared.errors import ServerAtFault
from edgeflock.shared.protocol.messages import Facts, Welcome


class Shards:
    """Batches of one of several data shards."""

    def __init__(self, shards: Sequence[Batches]) -> None:
        self._shards = shards
        self._chosen = shards[0]

    def choose(self, number: int) -> None:
        """Take the next batches from this data shard, from 0 on. Raises ServerAtFault if it is missing."""
        if number >= len(self._shards):
            raise _no_such_shard(number, len(self._shards))
        self._chosen = self._shards[number]

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        for one in self._shards:
            one.begin(welcome, backend)

    async def ready(self, steps: int) -> None:
        await self._chosen.ready(steps)

    def take(self, size: int) -> Batch:
        return self._chosen.take(size)

    def record_result(self, loss: float, right: float | None) -> None:
        self._chosen.record_result(loss, right)

    def settle(self) -> None:
        self._chosen.settle()

    def take_back(self) -> None:
        self._chosen.take_back()

    def telemetry(self) -> Facts:
        return self._chosen.telemetry()


def require_first_shard(number: int) -> None:
    """Shards.choose for a device with a single data shard."""
    if number:
        raise _no_such_shard(number, 1)


def _no_such_shard(number: int, held: int) -> ServerAtFault:
    return ServerAtFault(f"the server asks for shard {number}, counted from 0; this device holds {held}")
