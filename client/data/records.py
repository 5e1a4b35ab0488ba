"""Chunks of a stream's samples, and the records that are skipped: their count, and the quarantine.

The quarantine is a file of bounded size with samples that were set aside. One JSON object a line:

    {"time": 1764000000.0, "kind": "out of range", "detail": "...", "record": ...}

`record` is a message as text, or else in base64, or the shape and first numbers of a sample. Skipped counts
all skipped samples. The file gets a few lines a second at most. A full file is renamed to NAME.1 and a new
one begins, so many faults neither fill the disk nor wear it out.
"""

import base64
import json
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.datasets import Dataset

log = logging.getLogger(__name__)


FILE_BYTES = 1 << 20
"""Largest size of the file. The previous file takes as much again."""

LINES = 10
"""Lines per second on average, and the largest burst."""

RECORD_CHARS = 1000
"""Characters of a message to keep, and"""
_NUMBERS = 32
"""numbers of a sample to keep."""


class QuarantineFile:
    """Writes the quarantine file. The first line creates it."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._now = now
        self._lines_left = float(LINES)
        """Lines that may still be written at the time `_last`."""
        self._last = now()
        self._works = True

    def put(self, kind: str, detail: str, record: object) -> None:
        """Write a line if the rate allows it. The first disk error is logged and ends all writing."""
        now = self._now()
        self._lines_left = min(LINES, self._lines_left + LINES * max(0.0, now - self._last))
        self._last = now
        if self._lines_left < 1 or not self._works:
            return
        self._lines_left -= 1
        entry = {"time": round(now, 3), "kind": kind, "detail": detail, "record": record}
        line = json.dumps(entry, allow_nan=False) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size + len(line) > FILE_BYTES:
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
            with open(self.path, "a", encoding="ascii") as file:
                file.write(line)
        except OSError as error:
            self._works = False
            log.warning("samples that are set aside are counted only: %s", error)


def message_entry(message: bytes) -> str | dict[str, str]:
    """Return a message in the form for a line."""
    short = message[:RECORD_CHARS]
    try:
        return short.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(short).decode()}


def sample_entry(x: NDArray[np.float32], y: NDArray[np.generic], key: str | None) -> dict[str, Any]:
    """Return a sample in the form for a line. NaN and infinity become text."""
    shown = {"shape": list(x.shape), "x": _numbers(x), "y": _numbers(y)}
    return shown if key is None else {**shown, "key": key}


def _numbers(array: NDArray[Any]) -> list[float | str]:
    flat = array.ravel()[:_NUMBERS].tolist()
    return [number if np.isfinite(number) else str(number) for number in flat]


@dataclass(frozen=True, slots=True)
class StreamChunk(Dataset):
    """Samples that arrived together, oldest first: x float32 [n, ...], y [n] int64 or float32."""

    keys: tuple[str | None, ...] = ()
    """The key of each sample: an equal key means the same sample. (): no sample has a key."""

    def select(self, flags: NDArray[np.bool_]) -> "StreamChunk":
        """Return the samples whose flag is set."""
        return StreamChunk(self.x[flags], self.y[flags], tuple(compress(self.keys, flags)))


OVERRUN = "overrun"
"""The kind of records that are dropped before they are read."""

RECORD_BYTES = 1 << 20
"""A longer record is broken."""


class Broken(Exception):
    """A record that holds no sample."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """The progress of a source's samples, in their order."""

    received: int = 0
    """Samples that training's buffer has received, and"""
    done: int = 0
    """how many of the first of these need not come again after a restart: trained, dropped, or on disk."""


class Skipped:
    """Counts skipped records, logs the first of each kind, and writes some of them to the quarantine."""

    def __init__(self, quarantine: QuarantineFile | None = None) -> None:
        self.counts: dict[str, int] = {}
        self.quarantine = quarantine
        self.progress: Callable[[], SourceProgress] = SourceProgress
        """Returns the progress of the yielded samples, for sources that can request them again."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, kind: str, detail: str, count: int = 1, records: Iterable[object] = ()) -> None:
        """Count `count` samples of this kind. `records` are JSON values of them for the quarantine."""
        if kind not in self.counts:
            kept = f"counted, some are in {self.quarantine.path}" if self.quarantine else "counted only"
            log.warning("skipped a record that is %s: %s (more of these are %s)", kind, detail, kept)
        self.counts[kind] = self.counts.get(kind, 0) + count
        if self.quarantine is not None:
            for record in islice(records, LINES):
                self.quarantine.put(kind, detail, record)
