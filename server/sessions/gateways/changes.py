"""The latest changes that gateways were told of: one whose line breaks for a moment goes on where it was."""

import os
from collections import deque
from itertools import islice

from edgeflock.shared.protocol import gateway


class ChangeLog:
    """One after the other. How many of them somebody had, of this leader's life alone, a mark says."""

    def __init__(self, most: int) -> None:
        """Keeps the newest, up to so many bytes."""
        self.mark = gateway.first_mark(os.urandom(gateway.LIFE))
        """Behind the last one."""
        self._most, self._bytes = most, 0
        self._kept: deque[bytes] = deque()
        """Packed."""

    def add(self, change: bytes) -> None:
        """The next one, packed."""
        self._kept.append(change)
        self._bytes += len(change)
        self.mark = gateway.further(self.mark, 1)
        while self._bytes > self._most:
            self._bytes -= len(self._kept.popleft())

    def since(self, mark: bytes) -> list[bytes] | None:
        """What followed a mark, the oldest first; None if that is not known, or no longer."""
        missed = self._missed(mark)
        return None if missed is None else list(islice(self._kept, len(self._kept) - missed, None))

    def knows(self, mark: bytes) -> bool:
        """Whether it knows that."""
        return self._missed(mark) is not None

    def _missed(self, mark: bytes) -> int | None:
        missed = gateway.between(mark, self.mark)
        return missed if missed is not None and missed <= len(self._kept) else None
