"""What a device is told in a run of tasks, beside the answers that it asks for: its next task, that a round
is over.

A Task follows each Model, and answers each Update. One that says that there is none for now is followed by
another one, as soon as there is something, or by the Over of the round.
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
    """What a session has in a run of tasks."""

    async def begin(self, version: int) -> None:
        """The device has the model of `version`: tell it what to compute from that."""

    async def went_on(self, *, counted: bool) -> None:
        """The device has computed a shard: tell it whether that counted, and what comes next."""

    async def follow(self) -> None:
        """Tell the device, until cancelled, what it waits for, or must know while it computes."""


class ServerTaskFeed:
    """`TaskFeed` of one session."""

    def __init__(self, host: RunHost, writer: Writer, tasks: Tasks, device: int, send: Send) -> None:
        self._host, self._writer, self._tasks = host, writer, tasks
        self._device, self._send = device, send
        self._base: int | None = None
        """The version whose round the device takes part in, if it does."""
        self._idle = False
        """Whether it was told that there is nothing for now."""

    async def begin(self, version: int) -> None:
        self._base = version
        if self._host.published.complete:
            await self._end()
            return
        task = await self._next()
        if self._base is not None:
            self._idle = task is None
            await self._send(Task(task))

    async def went_on(self, *, counted: bool) -> None:
        task = await self._next()
        if self._base is None:  # perhaps this session has told it nothing yet
            await self._send(Over(self._host.published.version))
        self._idle = task is None and self._base is not None
        await self._send(Task(task, counted))

    async def follow(self) -> None:
        while True:
            await self._writer.turned()
            if self._base is None:
                continue
            if self._host.published.version != self._base:
                await self._end()
            elif self._idle and (task := await self._next()) is not None:
                self._idle = False
                await self._send(Task(task))

    async def _next(self) -> int | None:
        """The device's next shard. None also if its round is over, of which it is then told before."""
        base, engine, tasks = self._base, self._host.engine, self._tasks
        if base is None:
            return None
        now = asyncio.get_running_loop().time()
        version, task = await self._writer.call(
            lambda: (
                engine.published.version,
                tasks.hand_out(self._device, now) if engine.published.version == base else None,
            )
        )
        if version != base:
            await self._end()
        elif task is None:
            self._writer.look()  # the engine may want to be woken later
        return task

    async def _end(self) -> None:
        """The device's round is over, if it does not know."""
        if self._base is None:
            return
        self._base, self._idle = None, False
        published = self._host.published
        if published.complete:
            await self._send(Stop(str(RunComplete(f"the run is over: {published.over}"))))
        else:
            await self._send(Over(published.version))
