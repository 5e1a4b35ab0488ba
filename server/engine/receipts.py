"""The number of each accepted update, and the version that it made: so that it counts once, however often it
is sent.
"""

from edgeflock.server.engine.log import LastReceipt, Log
from edgeflock.shared.errors import BadSequence, SequenceAhead

SEQUENCE_WINDOW = 1 << 16
"""How far a device's next number may be above the last accepted one. Numbers are spent by refused updates,
too, of which nobody has as many in a row; but at the largest number a name could never push again."""


class Receipts:
    """Of all devices of a run."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._last = log.last_receipts()

    def last_sequence(self, device: int) -> int:
        """The highest sequence number accepted from a device, 0 if none was."""
        last = self._last.get(device)
        return last.sequence if last else 0

    def is_next(self, device: int, sequence: int) -> bool:
        """Whether it is above the last one. Raises SequenceAhead if it is too far above it."""
        last = self.last_sequence(device)
        if sequence > last + SEQUENCE_WINDOW:
            raise SequenceAhead(
                f"sequence {sequence} is more than {SEQUENCE_WINDOW} above {last}, the last accepted; "
                f"go on with {last + 1}"
            )
        return sequence > last

    def add(self, device: int, sequence: int, version: int) -> None:
        """The device's update of this number makes a version."""
        self._last[device] = LastReceipt(sequence, version)

    def version_of(self, device: int, sequence: int) -> int:
        """Which one an update made that is sent again. Raises BadSequence if none of that number did."""
        last = self._last.get(device)
        if last is not None and sequence == last.sequence:
            return last.version
        if (earlier := self._log.receipt(device, sequence)) is not None:
            return earlier
        raise BadSequence(
            f"sequence {sequence} was never accepted and {self.last_sequence(device)} already is; "
            "go on above it"
        )
