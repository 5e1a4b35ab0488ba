"""Where samples go that are not trained on: a file of bounded size that says of each what is wrong with it.

One JSON object a line:

    {"time": 1764000000.0, "kind": "out of range", "detail": "...", "record": ...}

`record` is a message as text, or in base64 if it is none, or the shape and first numbers of a sample. What
is skipped is counted whatever happens (Skipped, in records.py); into the file go a few lines a second at
most, and once it is full it begins anew, with the one before it kept beside it: a flood fills no disk and
wears none out.
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
"""Of the file, and as much of the one before it."""

LINES = 10
"""A second, on average, and at once."""

RECORD_SHOWN = 1000
"""Characters of a message, and"""
_NUMBERS = 32
"""numbers of a sample that are kept."""


class QuarantineFile:
    """Writes the file; nothing is there before the first line."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._left = float(LINES)
        """Lines that may be written by `_last`."""
        self._last = now()
        self._works = True

    def put(self, kind: str, detail: str, record: object) -> None:
        """A line, if there is room for one now. A disk that fails is told of once, and not tried again."""
        now = self._now()
        self._left = min(LINES, self._left + LINES * max(0.0, now - self._last))
        self._last = now
        if self._left < 1 or not self._works:
            return
        self._left -= 1
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


def of_message(message: bytes) -> str | dict[str, str]:
    """A message as a line shows it."""
    short = message[:RECORD_SHOWN]
    try:
        return short.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(short).decode()}


def of_sample(x: NDArray[np.float32], y: NDArray[np.generic], key: str | None) -> dict[str, Any]:
    """A sample as a line shows it; numbers that JSON has none for as text."""
    shown = {"shape": list(x.shape), "x": _numbers(x), "y": _numbers(y)}
    return shown if key is None else {**shown, "key": key}


def _numbers(array: NDArray[Any]) -> list[float | str]:
    flat = array.ravel()[:_NUMBERS].tolist()
    return [number if np.isfinite(number) else str(number) for number in flat]
