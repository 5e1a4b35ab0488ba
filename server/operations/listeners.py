"""What a program is told of its run: functions of its own, called in the event loop, in order."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted
from edgeflock.shared.protocol.frames import Evaluation


class Applied(NamedTuple):
    """An update that is in the model, and durable."""

    version: int
    """That it made."""
    device: str
    staleness: int
    """tau: versions between its base and the one that it was applied to."""
    loss: float
    """Of its batch, as the device says."""
    samples: int

    @classmethod
    def of(cls, push: Push, accepted: Accepted, device: str) -> "Applied":
        """`device` is the name of whose `push` it was."""
        update = push.update
        return cls(accepted.receipt.version, device, accepted.staleness, update.loss, update.samples)


@dataclass(frozen=True, slots=True)
class Listening:
    """Who is to be told; what they raise ends the run."""

    on_update: Callable[[Applied], object] | None = None
    on_evaluated: Callable[[Evaluation], object] | None = None


class Listeners:
    """Tells what has happened as soon as the loop gets there, and the rest when the server stops."""

    def __init__(self, listening: Listening, devices: Callable[[], Iterable[tuple[int, str]]]) -> None:
        """`devices` are the numbers and names of those that are known."""
        self.failure: Exception | None = None
        """What a function has raised; nobody is told anything after."""
        self._listening = listening
        self._devices = devices
        self._names: dict[int, str] = {}
        self._news: deque[Callable[[], object]] = deque()
        self._wake = asyncio.Event()

    def updated(self, push: Push, accepted: Accepted) -> None:
        """`push` made the version of its receipt."""
        told = self._listening.on_update
        if told is None:
            return
        if push.device not in self._names:
            self._names = dict(self._devices())
        self._add(partial(told, Applied.of(push, accepted, self._names[push.device])))

    def evaluated(self, evaluation: Evaluation) -> None:
        if self._listening.on_evaluated is not None:
            self._add(partial(self._listening.on_evaluated, evaluation))

    async def run(self) -> None:
        """Tell what comes, until cancelled. Raises what a function does."""
        while True:
            self.tell()
            if self.failure is not None:
                raise self.failure
            await self._wake.wait()
            self._wake.clear()

    def tell(self) -> None:
        """Tell what has come by now."""
        while self._news and self.failure is None:
            try:
                self._news.popleft()()
            except Exception as error:  # a function of the program's may raise anything
                self.failure = error

    def _add(self, news: Callable[[], object]) -> None:
        self._news.append(news)
        self._wake.set()
