"""How a source fares, as values: its connection, and how old what it shows is."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class LinkState:
    """Where frames come from, and how that goes."""

    phase: Literal["connecting", "live", "waiting", "refused", "replay", "ended"]
    detail: str = ""
    """Why there is no connection; of a replay, its speed and place."""
    again: float | None = None
    """When (monotonic) the next attempt comes."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old what is shown is."""

    age: float
    """Seconds since the last frame came."""
    interval: float = 1.0
    """Seconds that frames are apart."""
    frozen: bool = False
    behind: float = 0.0
    """Seconds between what is shown and the newest frame."""
    again_in: float | None = None
