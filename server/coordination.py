"""When updates apply.

    async     each at once, as a version of its own: nobody waits for anybody
    rounds    all that were computed from the same version, together: synchronous SGD

What a round comes to is in parameters.py. Whoever holds the devices' answers back until it ends (writer.py,
the emulated fleet) asks here when that is.
"""

from collections.abc import Set
from dataclasses import dataclass

from edgeflock.shared.config import Coordination


@dataclass(frozen=True, slots=True)
class Rounds:
    """When a round ends."""

    quorum: int
    """How many updates are enough; 0: one of each device that is present."""
    deadline: float
    """Seconds after its first update when it ends in any case."""

    @classmethod
    def of(cls, settings: Coordination) -> "Rounds | None":
        """None if the run has no rounds."""
        return cls(settings.quorum, settings.deadline) if settings.mode == "rounds" else None

    def is_over(self, pushed: Set[int], present: Set[int], seconds: float) -> bool:
        """Whether a round ends to which the devices `pushed` have contributed, the first `seconds` ago."""
        if not pushed:
            return False
        enough = len(pushed) >= self.quorum if self.quorum else present <= pushed
        return enough or seconds >= self.deadline
