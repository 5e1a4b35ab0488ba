"""What an engine hands out: what came of updates, and what everybody may see of the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgeflock.server.coordination import Push
from edgeflock.shared.errors import Refused
from edgeflock.shared.protocol.messages import Receipt


class Accepted(NamedTuple):
    """An update that is in the model."""

    receipt: Receipt
    staleness: int
    """tau: versions between its base and the one that it was applied to."""
    share: float = 1.0
    """What part of it counts, as a defence decided."""


Answer = Accepted | Refused


class Staged(NamedTuple):
    """What came of a group, in memory only: nothing of it may leave before `Engine.publish`."""

    settled: list[tuple[Push, Answer]]
    """Updates of this group, and earlier ones that were held until now. What is not in it is held."""
    together: int = 0
    """How many of them had waited for each other."""
    made: Sequence[tuple[Push, Accepted]] = ()
    """The updates that made versions, in their order, answered or not yet."""
    answered_later: bool = False
    """Whether updates behind a gate may be in the model by now, so that there is something to publish."""


@dataclass(frozen=True, slots=True)
class Published:
    """What is durable, for everybody to see. Replaced as a whole."""

    version: int
    """How many updates have been applied."""
    learning_rate: float
    over: str | None
    """Why the run is complete, if it is."""
    diverged: str | None = None
    """Why no update is taken any more, and what to do about it, if the model has diverged."""

    @property
    def complete(self) -> bool:
        """Whether no more updates are wanted."""
        return self.over is not None
