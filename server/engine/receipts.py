"""The sequence number and version of each accepted update, so that a resent update counts once."""

from edgeflock.server.engine.log import LastReceipt, Log
from edgeflock.shared.errors import BadSequence, SequenceAhead

SEQUENCE_WINDOW = 1 << 16
"""How far a device's next number may be above the last accepted one. Refused updates use up numbers too, but
no device has so many in a row. Without this limit, an update with the largest number would block the name."""


class Receipts:
    """The receipts of all devices of a run."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._last = log.last_receipts()

    def last_sequence(self, device: int) -> int:
        """Return the highest sequence number accepted from a device, or 0."""
        last = self._last.get(device)
        return last.sequence if last else 0

    def is_next(self, device: int, sequence: int) -> bool:
        """Whether `sequence` is above the last accepted one. Raises SequenceAhead if it is too far above."""
        last = self.last_sequence(device)
        if sequence > last + SEQUENCE_WINDOW:
            raise SequenceAhead(
                f"sequence {sequence} is more than {SEQUENCE_WINDOW} above {last}, the last accepted; "
                f"continue with {last + 1}"
            )
        return sequence > last

    def add(self, device: int, sequence: int, version: int) -> None:
        """Record that the device's update of this number makes `version`."""
        self._last[device] = LastReceipt(sequence, version)

    def version_of(self, device: int, sequence: int) -> int:
        """Return the version that a resent update made. Raises BadSequence if none had this number."""
        last = self._last.get(device)
        if last is not None and sequence == last.sequence:
            return last.version
        if (earlier := self._log.receipt(device, sequence)) is not None:
            return earlier
        raise BadSequence(
            f"sequence {sequence} was never accepted, but {self.last_sequence(device)} already was; "
            "continue with a higher one"
        )
