"""What an engine returns: the results of updates, and the public state of the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgeflock.server.coordination import Push
from edgeflock.server.journal import Journal
from edgeflock.server.journal.records import LastReceipt
from edgeflock.shared.errors import BadSequence, Refused, SequenceAhead
from edgeflock.shared.protocol.messages import Receipt


class Accepted(NamedTuple):
    """An update that is in the model."""

    receipt: Receipt
    staleness: int
    """tau: versions between the update's base and the version that it changed."""
    share: float = 1.0
    """The share of the update that counts, as a defence decided."""


Answer = Accepted | Refused


class Staged(NamedTuple):
    """The results of a group, in memory only: none of them may leave before `Engine.publish`."""

    answers: list[tuple[Push, Answer]]
    """Answered updates, of this group and earlier held ones. A missing one waits: held, or at the gate."""
    released: int = 0
    """How many held updates applied together in this group; 0: none."""
    applied: Sequence[tuple[Push, Accepted]] = ()
    """The updates that made versions, in order, answered or not yet."""
    has_waiting: bool = False
    """Whether answers wait at the gate. Their updates may be in the model, which then has to be published."""


@dataclass(frozen=True, slots=True)
class Published:
    """The durable public state of a run. Replaced as a whole."""

    version: int
    """How many updates have been applied."""
    learning_rate: float
    end_reason: str | None
    """Why the run is complete, if it is."""
    diverged: str | None = None
    """If the model has diverged: why no update is taken any more, and the remedy."""

    @property
    def complete(self) -> bool:
        """Whether the run takes no more updates."""
        return self.end_reason is not None

    @property
    def farewell(self) -> str:
        """The reason that devices get once the run is complete."""
        return f"the run is over: {self.end_reason}"


SEQUENCE_WINDOW = 1 << 16
"""How far a device's next number may be above the last accepted one. Refused updates use up numbers too, but
no device has so many in a row. Without this limit, an update with the largest number would block the name."""


class Receipts:
    """The receipts of all devices of a run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._last = journal.last_receipts()

    def last_sequence(self, device: int) -> int:
        """Return the highest sequence number accepted from a device, or 0."""
        last = self._last.get(device)
        return last.sequence if last else 0

    def last_version(self, device: int) -> int:
        """Return the version that the last update of a device made, or 0."""
        last = self._last.get(device)
        return last.version if last else 0

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
        if (earlier := self._journal.receipt(device, sequence)) is not None:
            return earlier
        raise BadSequence(
            f"sequence {sequence} was never accepted, but {self.last_sequence(device)} already was; "
            "continue with a higher one"
        )
