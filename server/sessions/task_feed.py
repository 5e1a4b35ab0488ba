"""Sends a device in a run of tasks records that it did not request: its next Task, or the Over of a round.

A Task follows each Model and answers each Update. It names the data shard to compute. After a Task without a
shard, another Task follows as soon as there is a shard, or the Over of the round.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from edgeflock.server.coordination import Tasks
from edgeflock.server.sessions.context import RunHost
from edgeflock.server.sessions.writer import Writer
from edgeflock.shared.errors import RunComplete
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


class ServerTaskFeed:
    """The `TaskFeed` of one session at the server."""

    def __init__(self, host: RunHost, writer: Writer, tasks: Tasks, device: int, send: Send) -> None:
        self._host, self._writer, self._tasks = host, writer, tasks
        self._device, self._send = device, send
        self._base: int | None = None
        """The version that the device's round starts from; None: the device is in no round."""
        self._idle = False
        """Whether its last Task had no shard."""

    async def begin(self, version: int) -> None:
        self._base = version
        if self._host.published.complete:
            await self._end()
            return
        task = await self._next_shard()
        if self._base is not None:
            self._idle = task is None
            await self._send(Task(task))

    async def advance(self, *, counted: bool) -> None:
        task = await self._next_shard()
        if self._base is None:  # this session may not have sent Over yet
            await self._send(Over(self._host.published.version))
        self._idle = task is None and self._base is not None
        await self._send(Task(task, counted))

    async def follow(self) -> None:
        while True:
            await self._writer.wait_for_change()
            if self._base is None:
                continue
            if self._host.published.version != self._base:
                await self._end()
            elif self._idle and (task := await self._next_shard()) is not None:
                self._idle = False
                await self._send(Task(task))

    async def _next_shard(self) -> int | None:
        """Return the device's next shard, if any. If its round is over, send Over or Stop; return None."""
        base, engine, tasks = self._base, self._host.engine, self._tasks
        if base is None:
            return None
        now = asyncio.get_running_loop().time()
        version, task = await self._writer.call(
            lambda: (
                engine.published.version,
                tasks.assign(self._device, now) if engine.published.version == base else None,
            )
        )
        if version != base:
            await self._end()
        elif task is None:
            self._writer.wake()  # the assignment may have changed the engine's `due`
        return task

    async def _end(self) -> None:
        """Send Over, or Stop if the run is complete, unless the device has it already."""
        if self._base is None:
            return
        self._base, self._idle = None, False
        published = self._host.published
        if published.complete:
            await self._send(Stop(str(RunComplete(f"the run is over: {published.end_reason}"))))
        else:
            await self._send(Over(published.version))
