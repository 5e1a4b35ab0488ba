"""The latest changes that gateways were told of: one whose line breaks for a moment goes on where it was."""

import os
from collections import OrderedDict

from edgeflock.shared.protocol import gateway


class Changes:
    """One after the other. Which of them somebody had, a mark says: a digest of all that came before, of this
    leader's life alone.
    """

    def __init__(self, most: int) -> None:
        """Keeps the newest, up to so many bytes."""
        self.mark = os.urandom(gateway.MARK)
        """Behind the last one."""
        self._most, self._bytes = most, 0
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        """Mark before a change -> it, packed."""

    def add(self, change: bytes) -> None:
        """The next one, packed."""
        self._kept[self.mark] = change
        self._bytes += len(change)
        self.mark = gateway.marked(self.mark, change)
        while self._bytes > self._most:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest)

    def knows(self, mark: bytes) -> bool:
        """Whether all that followed it is kept."""
        return mark == self.mark or mark in self._kept

    def since(self, mark: bytes) -> list[bytes]:
        """What followed a mark that it knows, the oldest first."""
        found: list[bytes] = []
        for before, change in reversed(self._kept.items()) if mark != self.mark else ():
            found.append(change)
            if before == mark:
                break
        return found[::-1]
