"""Sends a device in a run of tasks records that it did not request: its next Task, or the Over of a round.

A Task follows each Model and answers each Update. It names the data shard to compute. After a Task without a
shard, another Task follows as soon as there is a shard, or the Over of the round.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from edgeflock.server.sessions.context import SessionContext
from edgeflock.shared.protocol.messages import Over, Record, Stop, Task

Send = Callable[[Record], Awaitable[None]]


class TaskFeed(Protocol):
    """The task feed of a session in a run of tasks."""

    async def begin(self, version: int) -> None:
        """Send the first task of the round that starts from `version`, whose model the device has."""

    async def advance(self, *, counted: bool) -> None:
        """Send the next task, and whether the shard that the device computed has `counted`."""

    async def follow(self) -> None:
        """Until cancelled, send a task once an idle device can have one, and the end of the round."""


class TaskQueue(Protocol):
    """The part of a Writer that task feeds use."""

    async def assign(self, device: int, base: int) -> int | None:
        """Return the device's next data shard in the round from version `base`. None: it has none now."""

    async def wait_for_change(self) -> None:
        """Wait until a round ends, a device's presence changes, or the engine's `due` passes."""


class ServerTaskFeed:
    """The `TaskFeed` of one session at the server."""

    def __init__(self, host: SessionContext, queue: TaskQueue, device: int, send: Send) -> None:
        self._host, self._queue = host, queue
        self._device, self._send = device, send
        self.base: int | None = None
        """The version that the device's round starts from; None: the device is in no round."""
        self._idle = False
        """Whether its last Task had no shard."""
        self._last_said: type[Record] | None = None
        """What this session has last said of the end of a round: Over or Stop."""

    async def begin(self, version: int) -> None:
        self.base = version
        shard = await self.next_shard()
        if self.base is not None:
            self._idle = shard is None
            await self._send(Task(shard))

    async def advance(self, *, counted: bool) -> None:
        shard = await self.next_shard()
        if self.base is None and self._last_said is None:  # the device comes from another session
            await self._tell_end()
        if self._last_said is Stop:  # in place of the Task
            return
        self._idle = shard is None and self.base is not None
        await self._send(Task(shard, counted))

    async def follow(self) -> None:
        while True:
            await self._queue.wait_for_change()
            if self.base is None:
                continue
            if self._host.published.version != self.base:
                await self.end_round()
            elif self._idle and (shard := await self.next_shard()) is not None:
                self._idle = False
                await self._send(Task(shard))

    async def next_shard(self) -> int | None:
        """Return the device's next shard, if any. If its round is over, end it, and return None."""
        if self.base is None:
            return None
        shard = await self._queue.assign(self._device, self.base)
        published = self._host.published
        if published.version == self.base and not published.complete:
            return shard
        await self.end_round()
        return None

    async def end_round(self) -> None:
        """Send Over, or Stop if the run is complete, unless the device has it already."""
        if self.base is not None:
            self.base, self._idle = None, False
            await self._tell_end()

    async def _tell_end(self) -> None:
        published = self._host.published
        record = Stop(published.farewell) if published.complete else Over(published.version)
        self._last_said = type(record)
        await self._send(record)
