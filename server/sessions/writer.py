"""The group commit: serialises all access to the engine.

While one group of updates is written to disk, the next one gathers, so many updates share one flush.
The event loop never waits for the disk or for a large update, since both run in a thread.

For an update that waits for others (coordination/rounds.py) `push` returns a PendingUpdate at once. The
future in it gets the result later. The device itself gets one answer.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted, Answer, Engine
from edgeflock.server.sessions.answers import AnswerReceiver, PendingUpdate, settle
from edgeflock.shared.errors import RunComplete, Unavailable

T = TypeVar("T")

_LARGEST_GROUP = 256
"""The largest group, which bounds how long its first update waits for the last."""

_GATHER_SECONDS = 0.002
"""The most seconds that a group waits to get as large as the one before, since a flush costs the same."""

_AVERAGE_WEIGHT = 0.1
"""The weight of the last commit in `Writer.commit_seconds`, a moving average."""

_BROKEN = "the server cannot write its journal now; try again later"
_STOPPING = "the server is stopping"


class Writer:
    """Gives one caller at a time access to the engine. Answers come only while `run` runs."""

    def __init__(
        self,
        engine: Engine,
        on_round: Callable[[int], None] = lambda updates: None,
        on_accepted: Callable[[Push, Accepted], None] = lambda push, accepted: None,
        on_published: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_round` gets the number of held updates that applied together.

        `on_accepted` gets each update in the model once, in the order of versions. `on_published` is called
        after each use of the engine, when it is at rest and durable, and before any answer.
        """
        self._engine = engine
        self._on_round = on_round
        self._on_accepted = on_accepted
        self._on_published = on_published
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="edgeflock-writer")
        self._engine_at_rest = asyncio.Lock()
        self._waiting: list[tuple[Push, AnswerReceiver[Accepted | PendingUpdate]]] = []
        self._held: dict[Push, asyncio.Future[Accepted]] = {}
        self._presence_changes: list[tuple[int, bool]] = []
        """(device, whether it is present), in order, not yet passed to the engine."""
        self._expected_size = 1
        self._group_full = asyncio.Event()
        self._wake = asyncio.Event()
        self._change_event = asyncio.Event()
        self._turn_events: dict[int, asyncio.Event] = {}
        """Device -> the event that ends its wait for its turn."""
        self._timer: asyncio.TimerHandle | None = None
        self._leaving = self._stopping = self._ended = self._has_changed = False
        self.commit_seconds = 0.0
        """The moving average of the seconds until a group is durable."""
        self.error: BaseException | None = None
        """The error of the journal or the engine, after which the server cannot continue."""

    @property
    def unavailable_reason(self) -> str | None:
        """Why no update is accepted. None: updates are accepted."""
        if self.error is not None:
            return _BROKEN
        return _STOPPING if self._leaving or self._stopping or self._ended else None

    def push(self, push: Push) -> asyncio.Future[Accepted | PendingUpdate]:
        """Push one update; return its durable result. Raises the Refused that it gets."""
        answer: asyncio.Future[Accepted | PendingUpdate] = asyncio.get_running_loop().create_future()
        self.put(push, answer)
        return answer

    def put(self, push: Push, answer: "AnswerReceiver[Accepted | PendingUpdate]") -> None:
        """`push` without a future: `answer` gets the result. Raises Unavailable."""
        self._check_working()
        self._waiting.append((push, answer))
        if len(self._waiting) >= self._expected_size:
            self._group_full.set()
        self._wake.set()

    def set_presence(self, device: int, present: bool) -> None:
        """Note that a device is present or absent. Others may wait for it."""
        if not self._leaving:
            self._presence_changes.append((device, present))
            self._wake.set()

    async def wait_for_change(self) -> None:
        """Wait until a round ends, a device's presence changes, or the engine's `due` passes."""
        await self._change_event.wait()

    async def assign(self, device: int, base: int) -> int | None:
        """Return the device's next data shard in the round from version `base`. None: it has none now."""
        engine, now = self._engine, asyncio.get_running_loop().time()
        tasks = engine.tasks
        assert tasks is not None, "only a run of tasks assigns shards"
        shard = await self.call(
            lambda: tasks.assign(device, now) if engine.published.version == base else None
        )
        if shard is None:
            self.wake()  # the assignment may have changed the engine's `due`
        return shard

    async def wait_for_turn(self, device: int) -> None:
        """Wait while the device is outside the cohort. Raises RunComplete, Unavailable."""
        engine = self._engine
        while not await self.read(lambda: engine.eligibility.has_turn(device)):
            if engine.published.complete:
                raise RunComplete(engine.published.farewell)
            if (farewell := engine.eligibility.farewell(device)) is not None:
                raise RunComplete(farewell)
            self._turn_events[device] = event = asyncio.Event()
            try:
                await event.wait()
            finally:
                if self._turn_events.get(device) is event:  # nobody set it, and no later call replaced it
                    del self._turn_events[device]

    def wake(self) -> None:
        """Let the engine check whether held updates apply now, and set the timer to its `due`."""
        self._wake.set()

    def prepare_stop(self) -> None:
        """Apply no held updates from now on, although devices that the server disconnects become absent."""
        self._leaving = True

    def stop(self) -> None:
        """End `run` after the waiting updates. Devices send held updates again to the next server."""
        self._leaving = self._stopping = True
        self._wake.set()

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` between two groups, where the engine is at rest and durable.

        If it fails, the journal has failed, and the server cannot continue. Raises Unavailable from then on.
        """
        async with self._engine_at_rest:
            self._check_working()
            try:
                result = await self._in_thread(function)
            except Exception as error:
                self._fail(error)
                raise Unavailable(_BROKEN) from error
            self._on_published()
            if self._engine.published.complete:
                self._wake_all()  # devices that wait for a turn get RunComplete
            return result

    async def read(self, function: Callable[[], T]) -> T:
        """`call` for a quick function that changes nothing. It runs on the event loop's thread."""
        async with self._engine_at_rest:
            self._check_working()
            return function()

    async def run(self) -> None:
        """Commit updates until `stop`. Raises the error of the journal or the engine.

        At its end, every update has an answer, and nothing uses the engine.
        """
        try:
            while self._waiting or not self._stopping:
                if not self._waiting:
                    await self._wake.wait()
                if self.error is not None:  # memory may be ahead of the disk, so no receipts
                    raise self.error
                await self._commit_group()
        except Exception as error:
            self._fail(error)
            raise
        finally:
            self._ended = True
            self._fail_all(_BROKEN if self.error else "the server stops; send it again")
            async with self._engine_at_rest:
                self._thread.shutdown()
                if self.error is not None:
                    self._engine.abandon()  # it then closes without writing

    async def _commit_group(self) -> None:
        """Commit the waiting updates, if any, and let the engine check what is due."""
        if self._waiting:
            await self._gather()
        self._wake.clear()  # this commit handles its cause
        group, self._waiting = self._waiting[:_LARGEST_GROUP], self._waiting[_LARGEST_GROUP:]
        try:
            settled = await self._commit([push for push, _ in group])
        except BaseException:
            self._waiting = group + self._waiting  # `run` answers them
            raise
        outcomes = dict(settled)
        for push in [held for held in self._held if held in outcomes]:  # their groups came before this one
            settle(self._held.pop(push), outcomes[push])
        for push, answer in group:
            if (outcome := outcomes.get(push)) is not None:
                settle(answer, outcome)
            elif not answer.done():  # somebody waits for it
                pending = PendingUpdate.begin()
                self._held[push] = pending.answer
                settle(answer, pending)
        if self._has_changed:
            self._has_changed = False
            changed, self._change_event = self._change_event, asyncio.Event()
            changed.set()
        self._wake_turns()

    def _wake_turns(self) -> None:
        """Wake only the devices whose turn it is, since thousands may wait."""
        if not self._turn_events:
            return
        engine, waiting = self._engine, self._turn_events.keys()
        members = waiting if engine.turns is None else engine.turns.members & waiting
        for device in list(waiting) if engine.published.complete else list(members):
            if (
                engine.published.complete
                or engine.eligibility.has_turn(device)
                or engine.eligibility.farewell(device) is not None
            ):
                self._turn_events.pop(device).set()

    async def _commit(self, pushes: list[Push]) -> list[tuple[Push, Answer]]:
        """engine.commit; its first half runs on the event loop's thread if it is quick.

        For small updates a switch between threads costs more than the work.
        """
        engine = self._engine
        async with self._engine_at_rest:
            self._check_working()
            presence, self._presence_changes = self._presence_changes, []
            for device, present in presence:
                (engine.add_device if present else engine.remove_device)(device)
            now = asyncio.get_running_loop().time()
            if engine.is_quick(pushes):
                staged = engine.stage(pushes, now, hold=self._leaving)
            else:
                staged = await self._in_thread(lambda: engine.stage(pushes, now, hold=self._leaving))
            self._set_timer(engine.due)
            publishes = staged.answers or staged.has_waiting
            settled = (
                await self._in_thread(lambda: self._timed(lambda: engine.publish(staged)))
                if publishes
                else []
            )
            self._on_published()
        for push, accepted in staged.applied:
            self._on_accepted(push, accepted)
        if staged.released:
            self._on_round(staged.released)
        self._has_changed |= bool(presence or staged.released)
        return settled

    def _timed(self, publish: Callable[[], T]) -> T:
        """Measure `publish`, and return its result."""
        began = time.perf_counter()
        settled = publish()
        self.commit_seconds += _AVERAGE_WEIGHT * (time.perf_counter() - began - self.commit_seconds)
        return settled

    def _set_timer(self, due: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if due is not None and not self._leaving:
            self._timer = asyncio.get_running_loop().call_at(due, self._wake_all)

    def _wake_all(self) -> None:
        """Check held updates now, and wake all that wait for a change or a turn."""
        self._has_changed = True
        self._wake.set()

    def _fail_all(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for _, answer in self._waiting:
            settle(answer, Unavailable(reason))
        for held in self._held.values():
            settle(held, Unavailable(reason))
        self._waiting.clear()
        self._held.clear()

    async def _gather(self) -> None:
        """Wait up to _GATHER_SECONDS while fewer updates wait than the last group had."""
        if len(self._waiting) < self._expected_size:
            self._group_full.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_GATHER_SECONDS):
                    await self._group_full.wait()
        self._expected_size = min(len(self._waiting), _LARGEST_GROUP)

    def _check_working(self) -> None:
        """Raise Unavailable after a failure, which may have left the engine half updated."""
        if self.error is not None or self._ended:
            raise Unavailable(_BROKEN if self.error else _STOPPING)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Run `function` in the writer's thread, and return its result.

        A cancelled caller waits until it has ended, since nothing else may use the engine before that.
        """
        job = self._thread.submit(function)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            while not job.done():  # if it had not begun, it is cancelled
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([asyncio.wrap_future(job)])
            if not job.cancelled() and (error := job.exception()):
                self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Store the first error, after which `run` ends."""
        self.error = self.error or error
        self._wake.set()
