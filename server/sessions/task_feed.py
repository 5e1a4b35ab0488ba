"""Sends a device in a run of tasks what it did not request: its next task, or that a round is over.

A Task follows each Model, and answers each Update. After a Task without a shard, another Task follows as soon
as there is a shard, or the Over of the round.
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
        """Send the first task of the round of `version`, whose model the device has."""

    async def advance(self, *, counted: bool) -> None:
        """Send whether the device's computed shard counted, and its next task."""

    async def follow(self) -> None:
        """Until cancelled, send the device awaited tasks, and the end of the round."""


class ServerTaskFeed:
    """The `TaskFeed` of one session at the server."""

    def __init__(self, host: RunHost, writer: Writer, tasks: Tasks, device: int, send: Send) -> None:
        self._host, self._writer, self._tasks = host, writer, tasks
        self._device, self._send = device, send
        self._base: int | None = None
        """The version whose round the device takes part in, if any."""
        self._idle = False
        """Whether its last Task had no shard."""

    async def begin(self, version: int) -> None:
        self._base = version
        if self._host.published.complete:
            await self._end()
            return
        task = await self._next()
        if self._base is not None:
            self._idle = task is None
            await self._send(Task(task))

    async def advance(self, *, counted: bool) -> None:
        task = await self._next()
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
            elif self._idle and (task := await self._next()) is not None:
                self._idle = False
                await self._send(Task(task))

    async def _next(self) -> int | None:
        """The device's next shard. None also if its round is over; then Over or Stop is sent first."""
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
            self._writer.wake()  # the engine may want to be woken later
        return task

    async def _end(self) -> None:
        """Send Over or Stop, unless the device has it."""
        if self._base is None:
            return
        self._base, self._idle = None, False
        published = self._host.published
        if published.complete:
            await self._send(Stop(str(RunComplete(f"the run is over: {published.end_reason}"))))
        else:
            await self._send(Over(published.version))
