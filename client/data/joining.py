"""Joins inputs and targets that arrive in separate messages, by key.

The target of a meter's reading may be known a minute later. Two messages with the same key, one with x and
one with y, make one sample. Waiting halves are limited in time, `seconds`, and in memory, JOIN_BYTES. Beyond
these limits the oldest are dropped first.
"""

from collections import OrderedDict
from collections.abc import Iterable

from edgeflock.client.data.messages import SampleMessage
from edgeflock.client.data.records import Broken, Skipped

JOIN_BYTES = 1 << 24
"""Limit on the bytes of waiting halves, including OVERHEAD for each."""

OVERHEAD = 512
"""Bytes that a half takes in addition to its numbers."""


class Joining:
    """Holds halves until their partners arrive."""

    def __init__(self, seconds: float, tally: Skipped) -> None:
        """`seconds` is the longest wait of a half. 0: halves are refused at once."""
        self._seconds = seconds
        self._tally = tally
        self._halves: OrderedDict[str, tuple[float, SampleMessage]] = OrderedDict()
        """Oldest first, each with its arrival time."""
        self.octets = 0
        """Bytes of the waiting halves."""

    def __len__(self) -> int:
        """The number of waiting halves."""
        return len(self._halves)

    def join(self, records: Iterable[SampleMessage], now: float) -> list[SampleMessage]:
        """Return the `records` that are whole, or completed by a waiting half. `now` is in seconds."""
        whole = []
        for record in records:
            try:
                joined = self._join(record, now)
            except Broken as broken:
                self._tally.add(broken.kind, broken.detail)
                continue
            if joined is not None:
                whole.append(joined)
        self._drop_expired(now)
        return whole

    def _join(self, record: SampleMessage, now: float) -> SampleMessage | None:
        if record.x is not None and record.y is not None:
            return record
        if not self._seconds or record.key is None or (record.x is None and record.y is None):
            missing = "x and y" if record.x is None and record.y is None else "x" if record.x is None else "y"
            remedy = "; with join=, x and y may come apart, each with a key" if record.key is not None else ""
            raise Broken("incomplete", f"there is no {missing}{remedy}")
        before = self._pop(record.key)
        if before is not None:
            if before.x is None and record.x is not None:
                return SampleMessage(record.x, before.y, record.key)
            if before.y is None and record.y is not None:
                return SampleMessage(before.x, record.y, record.key)
            self._tally.add("of a key in use", f"{record.key}: the same half came twice")
        self._halves[record.key] = (now, record)
        self.octets += _octets(record)
        return None

    def _drop_expired(self, now: float) -> None:
        while self._halves:
            key, (arrived, record) = next(iter(self._halves.items()))
            if now - arrived <= self._seconds and self.octets <= JOIN_BYTES:
                return
            missing = "x" if record.x is None else "y"
            self._tally.add(f"without its {missing}", f"{key}: it did not come in time, or too many wait")
            self._pop(key)

    def _pop(self, key: str) -> SampleMessage | None:
        _, record = self._halves.pop(key, (0.0, None))
        if record is not None:
            self.octets -= _octets(record)
        return record


def _octets(record: SampleMessage) -> int:
    return OVERHEAD + sum(half.nbytes for half in (record.x, record.y) if half is not None)
