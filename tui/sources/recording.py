"""Recordings: the frames of a feed in a file, to watch them again without the server.

A recording has msgpack objects: a map with its kind and version, then [received, key, moment, frame] for each
frame. `key` tells whether the frame is a Snapshot. There is one at least every KEY_EVERY frames, so that a
seek does not start at the beginning. `moment` is the frame's part of the curves. If a file ends inside a
frame, that frame is ignored.
"""

import bisect
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import msgpack

from edgeflock.shared.errors import ConfigError, Malformed
from edgeflock.shared.protocol import feed
from edgeflock.shared.protocol.frames import Frame, Snapshot
from edgeflock.tui.sources.state import MAX_POINTS, Moment, MonitorState, reduce, snapshot

KEY_EVERY = 60
_MAGIC = {"edgeflock": "recording", "version": 1}


class Recorder:
    """Writes frames as they arrive. Raises OSError if a write fails."""

    def __init__(self, file: IO[bytes], clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = file, clock
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
        time_received = self._clock() if received is None else received
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
