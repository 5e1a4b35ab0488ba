"""The quarantine: a file of bounded size with samples that were set aside, and the fault of each.

One JSON object a line:

    {"time": 1764000000.0, "kind": "out of range", "detail": "...", "record": ...}

`record` is a message as text, or else in base64, or the shape and first numbers of a sample. Skipped
(records.py) counts all skipped samples. The file gets a few lines a second at most. A full file is renamed to
NAME.1 and a new one begins, so many faults neither fill the disk nor wear it out.
"""

import base64
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        self._path = path
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
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size + len(line) > FILE_BYTES:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            with open(self._path, "a", encoding="ascii") as file:
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
