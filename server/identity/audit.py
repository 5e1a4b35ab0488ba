"""Who did what and when, a line of JSON each. It is only ever added to, by the server and by commands."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

AUDIT = "audit.jsonl"


class Audit:
    """The file of one run, for its owner's eyes (mode 0600)."""

    def __init__(self, directory: Path, now: Callable[[], float] = time.time) -> None:
        self.path = directory / AUDIT
        self._now = now

    def note(self, who: str, did: str, **what: object) -> None:
        """A line; whole, also where two processes write at once. Raises OSError."""
        line = json.dumps({"time": round(self._now(), 3), "who": who, "did": did, **what})
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode() + b"\n")
        finally:
            os.close(file)
