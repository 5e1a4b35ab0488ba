"""Where states come from: a live server, with its recent past, or a recording. Screens know no more."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from edgeflock.shared.frames import Point, Row
from edgeflock.tui.page_header import Freshness, Link
from edgeflock.tui.state import State

MOST_KEPT = 900
"""States kept for stepping back, and"""
MOST_ROWS = 100_000
"""the devices' rows that may have changed between them: half a KiB each, so about 50 MiB."""

Notify = Callable[[], None]
"""Called when there is something new to show."""


class Source(Protocol):
    """A run that can be watched."""

    name: str
    """What stands on its tab."""

    @property
    def link(self) -> Link: ...

    @property
    def actions(self) -> "Actions | None":
        """None where nothing can be done: a recording."""

    @property
    def state(self) -> State | None:
        """What to show; None before there is anything."""

    def freshness(self) -> Freshness: ...

    async def run(self, changed: Notify) -> None:
        """Keep up to date until cancelled."""

    def toggle(self) -> None:
        """Freeze what is shown, or go on."""

    def step(self, frames: int) -> None:
        """Freeze, and show so many frames later (earlier if negative)."""

    def leap(self, direction: int) -> None:
        """A longer way, of a tenth of what there is."""

    def faster(self, factor: float) -> None:
        """Change the speed of a replay."""

    def seek(self, where: str) -> None:
        """Go to a place of a replay: 40% or a time such as 12:30. Raises ConfigError."""

    async def history(self, row: Row) -> tuple[Point, ...]:
        """The recent past of a device. Raises EdgeflockError."""


class Actions(Protocol):
    """What an admin may do. Each returns what came of it, or raises EdgeflockError."""

    async def pause(self, name: str, because: str) -> str: ...

    async def resume(self, name: str) -> str: ...

    async def drop(self, name: str) -> str: ...

    async def learning_rate(self, value: float) -> str: ...

    async def checkpoint(self) -> str: ...


class Kept:
    """The newest states, bounded, and which of them is shown."""

    def __init__(self, most: int = MOST_KEPT, most_rows: int = MOST_ROWS) -> None:
        self._most, self._most_rows = most, most_rows
        self._states: deque[State] = deque()
        self._rows = 0
        self._at: int | None = None
        """The one shown while frozen; None: the newest."""

    def __len__(self) -> int:
        return len(self._states)

    @property
    def frozen(self) -> bool:
        return self._at is not None

    @property
    def newest(self) -> State | None:
        return self._states[-1] if self._states else None

    @property
    def shown(self) -> State | None:
        return self.newest if self._at is None else self._states[self._at]

    @property
    def behind(self) -> float:
        """Seconds between what is shown and the newest."""
        return self._states[-1].time - self._states[self._at].time if self._at is not None else 0.0

    def add(self, state: State) -> None:
        """Keep one more; the oldest go, except the one that is looked at."""
        self._states.append(state)
        self._rows += state.changed
        while len(self._states) > 2 and (len(self._states) > self._most or self._rows > self._most_rows):
            if self._at is not None:
                if self._at == 0:
                    self._forget(1)
                    continue
                self._at -= 1
            self._forget(0)

    def _forget(self, which: int) -> None:
        self._rows -= self._states[which].changed
        del self._states[which]

    def toggle(self) -> None:
        if self._states:
            self._at = None if self._at is not None else len(self._states) - 1

    def step(self, frames: int) -> None:
        if self._states:
            at = len(self._states) - 1 if self._at is None else self._at
            self._at = max(0, min(at + frames, len(self._states) - 1))

    def rows(self, device: int) -> list[tuple[float, Row]]:
        """(time, row) of a device, up to what is shown."""
        states = list(self._states)[: len(self._states) if self._at is None else self._at + 1]
        return [(state.time, state.devices[device]) for state in states if device in state.devices]
