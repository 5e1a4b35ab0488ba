"""The audit log: who did what and when, one line of JSON each. The server and commands append to it."""

import json
import os
import time
from pathlib import Path

AUDIT = "audit.jsonl"


class Audit:
    """The audit file of one run. Only its owner may read it (mode 0600)."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / AUDIT

    def note(self, actor: str, action: str, **details: object) -> None:
        """Append a line in one write, so that two processes do not mix lines. Raises OSError."""
        line = json.dumps({"time": round(time.time(), 3), "who": actor, "did": action, **details})
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode() + b"\n")
        finally:
            os.close(file)
