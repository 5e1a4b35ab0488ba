"""Recordings: the frames of a feed in a file, so that they can be watched again without the server.

A file of msgpack objects: a map that says what it is, then [received, key, moment, frame] for each frame.
`key` says whether the frame is a Snapshot; one is put in every KEY_EVERY frames, so that a seek need not
begin at the beginning. `moment` is the frame's part of the curves. A file that ends inside of a frame ends
before it.
"""

import bisect
import time
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import msgpack

from edgeflock.shared.errors import ConfigError, Malformed
from edgeflock.shared.protocol import feed
from edgeflock.shared.protocol.frames import Frame, Snapshot
from edgeflock.tui.sources.state import MOST_POINTS, Moment, MonitorState, reduce, replaced_trend, snapshot

KEY_EVERY = 60
_MAGIC = {"edgeflock": "recording", "version": 1}


class Recorder:
    """Writes frames as they come. Raises OSError if the disk does."""

    def __init__(self, file: IO[bytes], clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = file, clock
        self._since_key = 0
        file.write(msgpack.packb(_MAGIC))

    @classmethod
    def at(cls, path: Path) -> "Recorder":
        """Begin a new file. Raises ConfigError if there is one already, or none can be."""
        try:
            return cls(open(path, "xb", buffering=0))
        except FileExistsError:
            raise ConfigError(f"--record {path}: there is such a file already; name another") from None
        except OSError as error:
            raise ConfigError(f"--record {path}: cannot be written: {error.strerror}") from error

    def add(self, frame: Frame, octets: bytes, state: MonitorState, received: float | None = None) -> None:
        """Write a frame, and the state after it as a Snapshot if it is time for one."""
        when = self._clock() if received is None else received
        self._since_key += 1
        key = isinstance(frame, Snapshot)
        if not key and self._since_key >= KEY_EVERY:
            octets, key = feed.encode(snapshot(state)), True
        if key:
            self._since_key = 0
        self._file.write(msgpack.packb([when, key, list(state.trend[-1]), octets]))

    def close(self) -> None:
        self._file.close()


class Recording:
    """Frames by their number."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        """Reads the whole file once, without keeping its frames. Raises ConfigError."""
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
            pass  # here it ends, or here it was cut off
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise ConfigError(f"{name} is damaged after frame {len(self.times)}: {error}") from error
        if not self._keys or self._keys[0] != 0:
            raise ConfigError(f"{name} holds no frames; was anything received while it was recorded?")

    @classmethod
    def at(cls, path: Path) -> "Recording":
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
    def of(cls, frames: Iterable[Frame], name: str) -> "Recording":
        """A recording in memory; each frame is received at its own time."""
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

    def state(self, number: int, near: tuple[int, MonitorState] | None = None) -> MonitorState:
        """The state after a frame, from the state after an earlier one if that saves work."""
        key = self._keys[bisect.bisect_right(self._keys, number) - 1]
        if near is not None and key <= near[0] <= number:
            start, state = near
        else:
            start, state = key, reduce(None, self.frame(key))
        for between in range(start + 1, number + 1):
            state = reduce(state, self.frame(between))
        every = max(1, -(-(number + 1) // MOST_POINTS))
        return replaced_trend(state, (*self._moments[:number:every], self._moments[number]))
