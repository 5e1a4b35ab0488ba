"""The group commit: everything that touches the engine, one after the other.

While one group of updates is written to disk, the next one gathers: the more devices push at once, the more
updates share a flush. The event loop never waits for the disk nor for a large update: both have a thread.

In rounds an update gets its answer when its round ends: once enough devices have contributed, or time is up.
"""

import asyncio
from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from edgeflock.server.coordination import Rounds
from edgeflock.server.engine import Answer, Engine, Push
from edgeflock.server.open_round import OpenRound
from edgeflock.shared.errors import Refused, Superseded, Unavailable
from edgeflock.shared.messages import Receipt

T = TypeVar("T")

_GROUP = 256
"""The largest group: bounds how long the first of it waits for the last."""

_GATHER = 0.002
"""Seconds that a group waits at most to grow as large as the one before: a flush costs the same for one
update or many."""


_STOPPING = "the server cannot write its journal and is stopping"


class Writer:
    """Lets one caller at a time at the engine."""

    def __init__(
        self,
        engine: Engine,
        rounds: Rounds | None = None,
        present: Callable[[], Set[int]] = frozenset,
        ended: Callable[[int], None] = lambda updates: None,
    ) -> None:
        """`present` tells the devices that a round waits for, `ended` is told how many updates one had."""
        self._engine = engine
        self._ended = ended
        self._round = OpenRound(rounds, present, self.look) if rounds else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="edgeflock-writer")
        self._engine_at_rest = asyncio.Lock()
        self._waiting: list[tuple[Push, asyncio.Future[Receipt]]] = []
        self._expected = 1
        self._enough = asyncio.Event()
        self._committing: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets the exception, if the journal or the engine fails: the server cannot go on."""
        self._closing = False

    @property
    def trouble(self) -> str | None:
        """Why no update can be taken; None if they can."""
        if self.failed.done():
            return _STOPPING if not self.failed.cancelled() else "the server has stopped"
        return "the server is stopping" if self._closing else None

    async def push(self, push: Push) -> Receipt:
        """The receipt for one update, durable. Raises the Refused that it met."""
        if self.failed.done():
            raise Unavailable(_STOPPING)
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append((push, answer))
        if len(self._waiting) >= self._expected:
            self._enough.set()
        self._work()
        return await answer

    def look(self) -> None:
        """A device has left, or time has passed: see whether the round is over."""
        if self._is_round_over():
            self._work()

    def leave_round_open(self) -> None:
        """The server stops: an open round must not end with those who happen to be left. It is sent again."""
        self._closing = True

    def _work(self) -> None:
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_groups())

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` between two groups, where the engine is at rest and durable.

        If it fails, the journal did, and the server cannot go on. Raises Unavailable from then on.
        """
        async with self._engine_at_rest:
            if self.failed.done():
                raise Unavailable(_STOPPING)
            running = asyncio.ensure_future(self._in_thread(function))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                await asyncio.wait([running])  # the thread goes on; nobody may touch the engine meanwhile
                raise
            except Exception as error:
                self._fail(error, [])
                raise Unavailable(_STOPPING) from error

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def close(self) -> None:
        """Answer what waits, leave a snapshot and end the thread."""
        self._closing = True
        while self._committing is not None:
            await self._committing
        for answer in self._waiting_for_the_round().values():  # nothing of it is journaled: it is sent again
            if not answer.done():
                answer.set_exception(Unavailable("the server stops; its round did not end"))
        if not self.failed.done():
            await self.call(self._engine.close)
            self.failed.cancel()
        else:
            self._engine.abandon()
        self._thread.shutdown()

    async def _commit_groups(self) -> None:
        while self._waiting or self._is_round_over():
            group: list[tuple[Push, asyncio.Future[Receipt]]] = []
            try:
                if self._waiting:
                    await self._gather()
                    group, self._waiting = self._waiting[:_GROUP], self._waiting[_GROUP:]
                    outcomes = await self._commit([push for push, _ in group])
                    for (push, answer), outcome in zip(group, outcomes, strict=True):
                        self._settle(push.device, answer, outcome)
                if self._is_round_over():
                    await self._end_round()
            except Exception as error:  # memory may now be ahead of the disk: nothing may be acknowledged
                self._fail(error, [answer for _, answer in group])
                break
        self._committing = None

    def _settle(self, device: int, answer: "asyncio.Future[Receipt]", outcome: Answer) -> None:
        if outcome is None:
            self._hold(device, answer)
        elif answer.done():
            pass  # nobody waits for it any more
        elif isinstance(outcome, Refused):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def _hold(self, device: int, answer: "asyncio.Future[Receipt]") -> None:
        assert self._round is not None, "only rounds hold"
        earlier = self._round.hold(device, answer)
        if earlier is not None and not earlier.done():
            earlier.set_exception(Superseded("the device sent its update again"))

    def _is_round_over(self) -> bool:
        if self._round is None or self._closing or self.failed.done():
            return False
        return self._round.is_over

    async def _end_round(self) -> None:
        async with self._engine_at_rest:
            self._check_working()
            receipts = await self._in_thread(self._engine.end_round)
        held = self._waiting_for_the_round()
        for push, receipt in receipts:
            self._settle(push.device, held[push.device], receipt)
        self._ended(len(receipts))

    def _waiting_for_the_round(self) -> dict[int, asyncio.Future[Receipt]]:
        return self._round.end() if self._round else {}

    async def _gather(self) -> None:
        """Wait a little while fewer updates wait than last time."""
        if len(self._waiting) < self._expected:
            self._enough.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GATHER):
                    await self._enough.wait()
        self._expected = min(len(self._waiting), _GROUP)

    def _check_working(self) -> None:
        """What failed while this waited for its turn may have left half of something behind."""
        if self.failed.done():
            raise Unavailable(_STOPPING)

    async def _commit(self, pushes: list[Push]) -> list[Answer]:
        """engine.commit, its first half on the event loop's thread if it is quick.

        For small updates the hand-over between threads costs more than the work.
        """
        async with self._engine_at_rest:
            self._check_working()
            if not self._engine.is_quick(pushes):
                return await self._in_thread(lambda: self._engine.commit(pushes))
            outcomes = self._engine.stage(pushes)
            return await self._in_thread(lambda: self._engine.publish(pushes, outcomes))

    def _fail(self, error: Exception, answers: list[asyncio.Future[Receipt]]) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
        held = self._waiting_for_the_round().values()
        for answer in [*answers, *held, *(answer for _, answer in self._waiting)]:
            if not answer.done():
                answer.set_exception(Unavailable(_STOPPING))
        self._waiting.clear()
