"""A recording as a source: plays at any speed, pauses, and seeks."""

import asyncio
import bisect
import re
import time
from collections.abc import Callable

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.frames import DeviceRow, Point
from edgeflock.tui.sources.link import Freshness, LinkState, Notify
from edgeflock.tui.sources.recording import Recording
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.sources.state_history import collect_points
from edgeflock.tui.text import numbers

TICK = 0.2
"""Seconds between two readings of the clock."""
SLOWEST, FASTEST = 1 / 16, 4096.0
HISTORY = 600
"""The number of frames for the history of a device."""


class Replay:
    """Plays a recording from its beginning."""

    actions = None

    def __init__(
        self,
        recording: Recording,
        name: str,
        *,
        speed: float = 1.0,
        position: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ConfigError if `position` is not a place."""
        self.name = name
        self._recording, self._speed, self._clock = recording, speed, clock
        self._frozen = False
        self._number = 0
        self._state = recording.state(0)
        self._position = 0.0
        """The place in the recording, in seconds."""
        if position:
            self.seek(position)

    @property
    def length(self) -> float:
        """The length of the recording, in seconds."""
        return self._recording.times[-1] - self._recording.times[0]

    @property
    def number(self) -> int:
        """The number of the displayed frame."""
        return self._number

    @property
    def state(self) -> MonitorState:
        return self._state

    @property
    def link(self) -> LinkState:
        place = f"{numbers.duration(self._position)} / {numbers.duration(self.length)}"
        speed = f"{self._speed:g}x" if self._speed >= 1 else f"1/{1 / self._speed:g}x"
        ended = self._number == len(self._recording) - 1
        shown = "‖ " if self._frozen else ""
        return LinkState("ended" if ended else "replay", f"{shown}replay {speed} {place}")

    def freshness(self) -> Freshness:
        return Freshness(0.0)

    async def run(self, changed: Notify) -> None:
        previous = self._clock()
        while True:
            await asyncio.sleep(TICK)
            now = self._clock()
            if self.advance(now - previous):
                changed()
            previous = now

    def advance(self, seconds: float) -> bool:
        """Advance by `seconds` of real time. Return whether there is something new to show."""
        if self._frozen or self._position >= self.length:
            return False
        self._play_to(self._position + seconds * self._speed)
        return True

    def toggle(self) -> None:
        if not self._frozen and self._position >= self.length:
            self._play_to(0.0)  # at the end, the same key starts again
        else:
            self._frozen = not self._frozen

    def step(self, frames: int) -> None:
        self._frozen = True
        number = max(0, min(self._number + frames, len(self._recording) - 1))
        self._play_to(self._recording.times[number] - self._recording.times[0])

    def leap(self, direction: int) -> None:
        self._play_to(self._position + direction * self.length / 10)

    def scale_speed(self, factor: float) -> None:
        self._speed = max(SLOWEST, min(self._speed * factor, FASTEST))

    def seek(self, position: str) -> None:
        """Go to a place: 40% or a time such as 12:30. Raises ConfigError."""
        if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", position.strip()):
            self._play_to(float(match[1]) / 100 * self.length)
        elif match := re.fullmatch(r"(?:(\d+):)?(?:(\d+):)?(\d+(?:\.\d+)?)", position.strip()):
            parts = [float(part) for part in match.groups() if part is not None]
            self._play_to(sum(part * 60**power for power, part in enumerate(reversed(parts))))
        else:
            raise ConfigError(f"place {position!r} must be a time such as 12:30, or a part such as 40%")

    async def history(self, row: DeviceRow) -> tuple[Point, ...]:
        rows = []
        for number in range(max(0, self._number - HISTORY), self._number + 1):
            frame = self._recording.frame(number)
            rows += [(frame.time, one) for one in frame.devices if one.id == row.id]
            if number % 50 == 0:
                await asyncio.sleep(0)
        return collect_points(rows)

    def _play_to(self, seconds: float) -> None:
        times = self._recording.times
        self._position = max(0.0, min(seconds, self.length))
        number = max(0, bisect.bisect_right(times, times[0] + self._position + 1e-9) - 1)
        if number != self._number:
            self._state = self._recording.state(number, (self._number, self._state))
            self._number = number
