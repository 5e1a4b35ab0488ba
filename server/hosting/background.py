"""The server's background tasks. If one task fails, all of them and the server stop."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from edgeflock.server.evaluation.evaluator import Evaluator
from edgeflock.server.roster import Hub
from edgeflock.server.sessions import Writer
from edgeflock.shared.errors import Unavailable


class Background:
    """Runs the writer, the evaluator, the hub and the tasks in `more`, from `start` to `stop`."""

    def __init__(
        self,
        writer: Writer,
        evaluator: Evaluator,
        hub: Hub,
        tasks: Mapping[str, Callable[[], Coroutine[Any, Any, None]]],
    ) -> None:
        self._writer = writer
        self._evaluator = evaluator
        self._hub = hub
        self._tasks = tasks
        self._stopping = asyncio.Event()
        self._failed_task = ""
        self._work: asyncio.Task[None] | None = None

    def start(self, on_failure: Callable[[], None]) -> None:
        """Start the tasks. `on_failure` is called if they end before `stop`."""
        self._work = asyncio.create_task(self._run())
        self._work.add_done_callback(lambda _: None if self._stopping.is_set() else on_failure())

    async def stop(self) -> None:
        """Answer pending updates, record the traffic, and end. Never raises; see `failure`."""
        self._stopping.set()
        if self._work is not None:
            await asyncio.wait([self._work])

    @property
    def failure(self) -> tuple[str, BaseException] | None:
        """(name, exception) of the first task that failed; None if no task failed."""
        if self._work is None or not self._work.done() or self._work.cancelled():
            return None
        error = self._work.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return None if error is None else (self._failed_task, error)

    async def _run(self) -> None:
        evaluator, hub = self._evaluator, self._hub
        async with asyncio.TaskGroup() as group:
            group.create_task(self._writer.run()).add_done_callback(self._watch("the journal's writer"))
            tasks = {
                "the evaluator": group.create_task(evaluator.run()),
                "the hub": group.create_task(hub.run(lambda: evaluator.state, lambda: evaluator.end_reason)),
                **{name: group.create_task(run()) for name, run in self._tasks.items()},
            }
            for name, task in tasks.items():
                task.add_done_callback(self._watch(name))
            await self._stopping.wait()
            for task in tasks.values():
                task.cancel()
            await asyncio.wait(tasks.values())
            with suppress(Unavailable):
                await evaluator.record()
            self._writer.stop()

    def _watch(self, name: str) -> Callable[[asyncio.Task[None]], None]:
        def record(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                self._failed_task = self._failed_task or name

        return record
