"""What an engine returns: the results of updates, and the public state of the run."""

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
