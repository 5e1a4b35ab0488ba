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
from edgeflock.shared.settings.run import CallbackSettings

Value = TypeVar("Value")
Callback = Callable[[Value], object]


def _ignore(value: object) -> None:
    pass


CALLBACKS: Table[Callback[Any]] = Table(
    "edgeflock.callbacks",
    {"": _ignore},
    lambda found: found if callable(found) and not iscoroutinefunction(found) else None,
)
"""Callbacks by the names in the section [callbacks]; none is async."""


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
    def from_push(cls, push: Push, accepted: Accepted, device: str) -> "Applied":
        """`device` is the name of the device of `push`."""
        update = push.update
        version, staleness = accepted.receipt.version, accepted.staleness
        return cls(version, device, staleness, update.loss, update.samples, accepted.share)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The callbacks of a run. An exception in one ends the run."""

    on_update: Callback[Applied] | None = None
    on_evaluated: Callback[Evaluation] | None = None
    stop: Callback[Evaluation] | None = None
    """Returns whether an evaluation is enough: then the run is over."""
    on_finding: Callback[Finding] | None = None

    def with_settings(self, settings: CallbackSettings) -> "Callbacks":
        """Return these callbacks combined with those that the settings name."""
        return Callbacks(
            _combine(self.on_update, settings.on_update),
            _combine(self.on_evaluated, settings.on_evaluated),
            _combine(self.stop, settings.stop),
            _combine(self.on_finding, settings.on_finding),
        )


def _combine(callback: Callback[Value] | None, name: str) -> Callback[Value] | None:
    """Return a function that calls `callback` and the callback `name`; it is true if one is."""
    if not name:
        return callback
    named = CALLBACKS.resolve(name)
    return named if callback is None else lambda value: any([named(value), callback(value)])


class Listeners:
    """Calls the callbacks as soon as the event loop is free; calls the rest when the server stops."""

    def __init__(
        self,
        callbacks: Callbacks,
        devices: Callable[[], Iterable[tuple[int, str]]],
        end: Callable[[str], Awaitable[None]],
        history: Iterable[Evaluation] = (),
    ) -> None:
        """`devices` returns the known (number, name) pairs. `history` has the evaluations so far.

        `end` ends the run, for a reason.
        """
        self.failure: Exception | None = None
        """The exception that a callback has raised; no callback is called after it."""
        self._callbacks = callbacks
        self._devices = devices
        self._names: dict[int, str] = {}
        self._calls: deque[Callable[[], object]] = deque()
        self._wake = asyncio.Event()
        self.end = end
        self._stops = False
        for evaluation in history:
            self._queue(self._stop, evaluation)

    def on_update(self, push: Push, accepted: Accepted) -> None:
        """Queue the news that `push` made the version of its receipt."""
        if self._callbacks.on_update is None:
            return
        if push.device not in self._names:
            self._names = dict(self._devices())
        self._queue(
            self._callbacks.on_update, Applied.from_push(push, accepted, self._names.get(push.device, "sum"))
        )

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self._queue(self._callbacks.on_evaluated, evaluation)
        self._queue(self._stop, evaluation)

    def on_finding(self, finding: Finding) -> None:
        """Queue the news of a finding that begins."""
        self._queue(self._callbacks.on_finding, finding)

    async def run(self) -> None:
        """Call callbacks until cancelled. Raises what a callback raises."""
        while True:
            self.call_queued()
            if self.failure is not None:
                raise self.failure
            if self._stops:
                self._stops = False
                await self.end("an evaluation was enough (callbacks.stop)")
            await self._wake.wait()
            self._wake.clear()

    def call_queued(self) -> None:
        """Call the callbacks for all queued news."""
        while self._calls and self.failure is None:
            try:
                self._calls.popleft()()
            except Exception as error:  # a program's function may raise anything
                self.failure = error

    def _stop(self, evaluation: Evaluation) -> None:
        if self._callbacks.stop is not None:
            self._stops = bool(self._callbacks.stop(evaluation)) or self._stops

    def _queue(self, callback: Callback[Value] | None, value: Value) -> None:
        if callback is not None:
            self._calls.append(partial(callback, value))
            self._wake.set()
