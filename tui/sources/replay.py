"""A recording as a source: plays at any speed, pauses, and seeks."""

import asyncio
import bisect
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import msgpack

from edgeflock.shared.errors import ConfigError, Malformed
from edgeflock.shared.protocol import feed
from edgeflock.shared.protocol.frames import DeviceRow, Frame, Point, Snapshot
from edgeflock.tui.sources.state import (
    MAX_POINTS,
    Freshness,
    LinkState,
    Moment,
    MonitorState,
    Notify,
    reduce,
    snapshot,
)
from edgeflock.tui.sources.state_history import collect_points
from edgeflock.tui.text import numbers

KEY_EVERY = 60
_MAGIC = {"edgeflock": "recording", "version": 1}


class Recorder:
    """Writes frames as they arrive. Raises OSError if a write fails."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frames_since_key = 0
        file.write(msgpack.packb(_MAGIC))

    @classmethod
    def create(cls, path: Path) -> "Recorder":
        """Open a new file. Raises ConfigError if it exists or cannot be created."""
        try:
            return cls(open(path, "xb", buffering=0))
        except FileExistsError:
            raise ConfigError(f"--record {path}: there is such a file already; name another") from None
        except OSError as error:
            raise ConfigError(f"--record {path}: cannot be written: {error.strerror}") from error

    def add(self, frame: Frame, octets: bytes, state: MonitorState, received: float | None = None) -> None:
        """Write a frame. Write the state after it as a Snapshot instead if one is due."""
        time_received = time.time() if received is None else received
        self._frames_since_key += 1
        key = isinstance(frame, Snapshot)
        if not key and self._frames_since_key >= KEY_EVERY:
            octets, key = feed.encode(snapshot(state)), True
        if key:
            self._frames_since_key = 0
        self._file.write(msgpack.packb([time_received, key, list(state.trend[-1]), octets]))

    def close(self) -> None:
        self._file.close()


class Recording:
    """The frames of a recording, by number."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        """Read the whole file once, without keeping its frames. Raises ConfigError."""
        self._file, self._name = file, name
        self.times: list[float] = []
        self._moments: list[Moment] = []
        self._offsets: list[int] = []
        self._keys: list[int] = []
        unpacker = msgpack.Unpacker(file, max_buffer_size=1 << 28)
        try:
            magic = next(iter(unpacker), None)
            if magic != _MAGIC:
                raise ConfigError(f"{name} is no recording of `edgeflock top --record`")
            while True:
                offset = unpacker.tell()
                received, key, moment, octets = unpacker.unpack()
                del octets
                self.times.append(max(float(received), self.times[-1]) if self.times else float(received))
                self._moments.append(Moment(*moment))
                if key:
                    self._keys.append(len(self._offsets))
                self._offsets.append(offset)
        except msgpack.OutOfData:
            pass  # the end of the file, or of a truncated one
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise ConfigError(f"{name} is damaged after frame {len(self.times)}: {error}") from error
        if not self._keys or self._keys[0] != 0:
            raise ConfigError(f"{name} holds no frames; was anything received while it was recorded?")

    @classmethod
    def open(cls, path: Path) -> "Recording":
        try:
            file = open(path, "rb")
        except OSError as error:
            raise ConfigError(f"--replay {path}: cannot be read: {error.strerror}") from error
        try:
            return cls(file, str(path))
        except ConfigError:
            file.close()
            raise

    @classmethod
    def from_frames(cls, frames: Iterable[Frame], name: str) -> "Recording":
        """Return a recording in memory. Each frame is received at its own time."""
        file = BytesIO()
        recorder = Recorder(file)
        state: MonitorState | None = None
        for frame in frames:
            state = reduce(state, frame)
            recorder.add(frame, feed.encode(frame), state, frame.time)
        file.seek(0)
        return cls(file, name)

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self.times)

    def frame(self, number: int) -> Frame:
        self._file.seek(self._offsets[number])
        unpacker: Any = msgpack.Unpacker(self._file, max_buffer_size=1 << 28)
        try:
            return feed.decode(unpacker.unpack()[3])
        except Malformed as error:
            raise ConfigError(f"{self._name}: frame {number}: {error}") from error

    def state(self, number: int, base: tuple[int, MonitorState] | None = None) -> MonitorState:
        """Return the state after a frame, from an earlier state `base` if that saves work."""
        key = self._keys[bisect.bisect_right(self._keys, number) - 1]
        if base is not None and key <= base[0] <= number:
            start, state = base
        else:
            start, state = key, reduce(None, self.frame(key))
        for between in range(start + 1, number + 1):
            state = reduce(state, self.frame(between))
        every = max(1, -(-(number + 1) // MAX_POINTS))
        return replace(state, trend=(*self._moments[:number:every], self._moments[number]))


TICK = 0.2
"""Seconds between two readings of the clock."""
SLOWEST, FASTEST = 1 / 16, 4096.0
HISTORY = 600
"""The number of frames for the history of a device."""


class Replay:
    """Plays a recording from its beginning."""

    actions = None

    def __init__(self, recording: Recording, name: str, *, speed: float = 1.0, position: str = "") -> None:
        """Raises ConfigError if `position` is not a place."""
        self.name = name
        self._recording, self._speed = recording, speed
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
        previous = time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
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
