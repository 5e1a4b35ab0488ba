"""Where states come from: a live server or a recording. Screens know no more of them than this."""

from collections.abc import Callable
from typing import Protocol

from edgeflock.shared.protocol.frames import DeviceRow, Point
from edgeflock.tui.sources.link import Freshness, LinkState
from edgeflock.tui.sources.state import MonitorState

Notify = Callable[[], None]
"""Called when there is something new to show."""


class Source(Protocol):
    """A run that can be watched."""

    name: str
    """What stands on its tab."""

    @property
    def link(self) -> LinkState: ...

    @property
    def actions(self) -> "Actions | None":
        """None where nothing can be done: a recording."""

    @property
    def state(self) -> MonitorState | None:
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

    async def history(self, row: DeviceRow) -> tuple[Point, ...]:
        """The recent past of a device. Raises EdgeflockError."""


class Actions(Protocol):
    """What an admin may do. Each returns what came of it, or raises EdgeflockError."""

    async def pause(self, name: str, because: str) -> str: ...

    async def resume(self, name: str) -> str: ...

    async def drop(self, name: str) -> str: ...

    async def pardon(self, name: str) -> str: ...

    async def learning_rate(self, value: float) -> str: ...

    async def checkpoint(self) -> str: ...

    async def roll_back(self, version: int) -> str: ...
