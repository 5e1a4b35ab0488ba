"""The state of a source as values: its connection, and the age of its data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Notify = Callable[[], None]
"""Called when there is a new state to show."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """The state of the connection that frames come from."""

    phase: Literal["connecting", "live", "waiting", "refused", "replay", "ended"]
    detail: str = ""
    """Why there is no connection. For a replay, its speed and place."""
    retry_time: float | None = None
    """The monotonic time of the next attempt."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """The age of the displayed data."""

    age: float
    """Seconds since the last frame arrived."""
    interval: float = 1.0
    """Seconds between frames."""
    frozen: bool = False
    lag: float = 0.0
    """Seconds between the displayed frame and the newest one."""
    retry_seconds: float | None = None
