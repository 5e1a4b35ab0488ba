"""The interface of sources, a live server or a recording. It is all that screens know of them."""

from collections.abc import Callable
from typing import Protocol

from edgeflock.shared.protocol.frames import DeviceRow, Point
from edgeflock.tui.sources.link import Freshness, LinkState
from edgeflock.tui.sources.state import MonitorState

Notify = Callable[[], None]
"""Called when there is a new state to show."""


class Source(Protocol):
    """A run to watch."""

    name: str
    """The name on the tab."""

    @property
    def link(self) -> LinkState: ...

    @property
    def actions(self) -> "Actions | None":
        """The actions of an admin. None for a recording."""

    @property
    def state(self) -> MonitorState | None:
        """The state to show, or None before the first."""

    def freshness(self) -> Freshness: ...

    async def run(self, changed: Notify) -> None:
        """Keep up to date until cancelled."""

    def toggle(self) -> None:
        """Freeze the display, or continue."""

    def step(self, frames: int) -> None:
        """Freeze the display, and move by `frames`, back if negative."""

    def leap(self, direction: int) -> None:
        """Move by a tenth of all frames or of the recording."""

    def scale_speed(self, factor: float) -> None:
        """Change the speed of a replay."""

    def seek(self, position: str) -> None:
        """Go to a place of a replay: 40% or a time such as 12:30. Raises ConfigError."""

    async def history(self, row: DeviceRow) -> tuple[Point, ...]:
        """Return the recent history of a device. Raises EdgeflockError."""


class Actions(Protocol):
    """Actions of an admin. Each returns its outcome, or raises EdgeflockError."""

    async def pause(self, name: str, reason: str) -> str: ...

    async def resume(self, name: str) -> str: ...

    async def drop(self, name: str) -> str: ...

    async def pardon(self, name: str) -> str: ...

    async def set_learning_rate(self, value: float) -> str: ...

    async def checkpoint(self) -> str: ...

    async def roll_back(self, version: int) -> str: ...
