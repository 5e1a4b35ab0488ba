"""A program's callbacks: functions that the event loop calls with news of the run, in order."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, TypeVar

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted
from edgeflock.shared.plugins import Table
from edgeflock.shared.protocol.frames import Evaluation, Finding
from edgeflock.shared.settings.run import RunSettings

News = TypeVar("News")
Told = Callable[[News], object]


def _nobody(news: object) -> None:
    pass


CALLBACKS: Table[Told[Any]] = Table(
    "edgeflock.callbacks",
    {"": _nobody},
    lambda found: found if callable(found) and not iscoroutinefunction(found) else None,
)
"""Callbacks by the names in run.on_update, run.on_evaluated, run.on_finding and run.stop; none is async."""


class Applied(NamedTuple):
    """An update that is in the model, and durable."""

    version: int
    """The version that it made."""
    device: str
    staleness: int
    """tau: versions between its base and the one that it was applied to."""
    loss: float
    """The loss of its batch, as the device reports."""
    samples: int
    share: float = 1.0
    """The share of the update that counts, as a defence decided."""

    @classmethod
    def of(cls, push: Push, accepted: Accepted, device: str) -> "Applied":
        """`device` is the name of the device of `push`."""
        update = push.update
        version, staleness = accepted.receipt.version, accepted.staleness
        return cls(version, device, staleness, update.loss, update.samples, accepted.share)


@dataclass(frozen=True, slots=True)
class Listening:
    """The callbacks of a run. An exception in one ends the run."""

    on_update: Told[Applied] | None = None
    on_evaluated: Told[Evaluation] | None = None
    stop: Told[Evaluation] | None = None
    """Returns whether an evaluation is enough: then the run is over."""
    on_finding: Told[Finding] | None = None

    def beside(self, run: RunSettings) -> "Listening":
        """Return these callbacks combined with those that the settings name."""
        return Listening(
            _both(self.on_update, run.on_update),
            _both(self.on_evaluated, run.on_evaluated),
            _both(self.stop, run.stop),
            _both(self.on_finding, run.on_finding),
        )


def _both(given: Told[News] | None, name: str) -> Told[News] | None:
    """Return a function that calls `given` and the callback `name`; it is true if one is."""
    if not name:
        return given
    named = CALLBACKS.chosen(name)
    return named if given is None else lambda news: any([named(news), given(news)])


class Listeners:
    """Calls the callbacks as soon as the event loop is free; calls the rest when the server stops."""

    def __init__(
        self,
        listening: Listening,
        devices: Callable[[], Iterable[tuple[int, str]]],
        end: Callable[[str], Awaitable[None]],
        history: Iterable[Evaluation] = (),
    ) -> None:
        """`devices` returns the known (number, name) pairs. `history` has the evaluations so far. `end` ends
        the run, for a reason.
        """
        self.failure: Exception | None = None
        """The exception that a callback has raised; no callback is called after it."""
        self._listening = listening
        self._devices = devices
        self._names: dict[int, str] = {}
        self._news: deque[Callable[[], object]] = deque()
        self._wake = asyncio.Event()
        self.end = end
        self._enough = False
        for evaluation in history:
            self._weigh(evaluation)

    def updated(self, push: Push, accepted: Accepted) -> None:
        """Queue the news that `push` made the version of its receipt."""
        told = self._listening.on_update
        if told is None:
            return
        if push.device not in self._names:
            self._names = dict(self._devices())
        self._add(partial(told, Applied.of(push, accepted, self._names[push.device])))

    def evaluated(self, evaluation: Evaluation) -> None:
        if self._listening.on_evaluated is not None:
            self._add(partial(self._listening.on_evaluated, evaluation))
        self._weigh(evaluation)

    def found(self, finding: Finding) -> None:
        """Queue the news of a finding that begins."""
        if self._listening.on_finding is not None:
            self._add(partial(self._listening.on_finding, finding))

    async def run(self) -> None:
        """Call callbacks until cancelled. Raises what a callback raises."""
        while True:
            self.tell()
            if self.failure is not None:
                raise self.failure
            if self._enough:
                self._enough = False
                await self.end("an evaluation was enough (run.stop)")
            await self._wake.wait()
            self._wake.clear()

    def tell(self) -> None:
        """Call the callbacks for all queued news."""
        while self._news and self.failure is None:
            try:
                self._news.popleft()()
            except Exception as error:  # a program's function may raise anything
                self.failure = error

    def _weigh(self, evaluation: Evaluation) -> None:
        if (stop := self._listening.stop) is None:
            return

        def weigh() -> None:
            self._enough = bool(stop(evaluation)) or self._enough

        self._add(weigh)

    def _add(self, news: Callable[[], object]) -> None:
        self._news.append(news)
        self._wake.set()
