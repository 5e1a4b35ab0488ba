"""The latest changes that gateways were sent, so that a gateway can resume after a short disconnection."""

import os
from collections import deque
from itertools import islice

from edgeflock.shared.protocol import gateway


class ChangeLog:
    """Changes in order. A mark says how many a gateway has had. It is valid in this leader's process only."""

    def __init__(self, limit: int) -> None:
        """Keeps the newest changes, up to `limit` bytes."""
        self.mark = gateway.first_mark(os.urandom(gateway.LIFE))
        """The mark after the last change."""
        self._limit, self._bytes = limit, 0
        self._changes: deque[bytes] = deque()
        """Packed changes."""

    def add(self, change: bytes) -> None:
        """Append the next change, packed."""
        self._changes.append(change)
        self._bytes += len(change)
        self.mark = gateway.advance(self.mark, 1)
        while self._bytes > self._limit:
            self._bytes -= len(self._changes.popleft())

    def list_after(self, mark: bytes) -> list[bytes] | None:
        """Return the packed changes after a mark, oldest first. None if the mark is unknown or too old."""
        missed = self._missed(mark)
        return None if missed is None else list(islice(self._changes, len(self._changes) - missed, None))

    def has(self, mark: bytes) -> bool:
        """Whether `list_after` knows the mark."""
        return self._missed(mark) is not None

    def _missed(self, mark: bytes) -> int | None:
        missed = gateway.changes_between(mark, self.mark)
        return missed if missed is not None and missed <= len(self._changes) else None
