"""What a defence goes by, and what it did."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

import numpy as np

from edgeflock.server.defence.norms import HELD, Norms
from edgeflock.server.defence.rules import DEFENCES, Seen, remembered
from edgeflock.server.defence.standing import Agreements
from edgeflock.server.defence.trusted import Trusted
from edgeflock.server.descent import Step
from edgeflock.server.descent.steps import norm


@dataclass(frozen=True, slots=True)
class Decision:
    """On one update."""

    share: float
    """The part of it that counts, as float32 has it: 1 all, 0 nothing."""
    norm: float
    """What is `remembered` of its own."""
    agreement: float | None
    """Of the update with the trusted gradient; None: there is none."""
    standing: float | None
    """The device's, with this update."""


@dataclass(slots=True)
class Record:
    """What came of a device's updates since the server started."""

    clipped: int = 0
    dropped: int = 0
    standing: float | None = None
    """What its updates say for it, or against it (standing.py); None: nothing is known."""


class Guard:
    """Decides, and remembers what came of it. Nothing of it shapes a replay."""

    def __init__(self, name: str, norms: Iterable[float] = (), held: int = HELD) -> None:
        """`name` is of DEFENCES. `norms` are `remembered` of updates before. Of a run's first updates, `held`
        of them only tell what is usual. Raises ConfigError.
        """
        self._kind = DEFENCES.known(name, "defence.mode")
        self._norms = Norms(norms, held)
        self._agreements = Agreements()
        self._trusted: Trusted | None = None
        self.records: dict[int, Record] = {}
        """device -> what came of its updates, of those with one."""
        self.counts = Counter[str]()
        """clipped and dropped."""

    @property
    def trusts(self) -> bool:
        """Whether it wants a trusted gradient now and then."""
        return self._kind.trusts

    def wants(self, version: int, refresh: int) -> bool:
        """Whether it wants a new one at a version: each `refresh` updates."""
        return self.trusts and (self._trusted is None or version - self._trusted.version >= refresh)

    def record(self, device: int) -> Record:
        """What came of a device's updates."""
        return self.records.get(device) or Record()

    def trust(self, trusted: Trusted) -> None:
        """Go by this gradient from now on."""
        self._trusted = trusted

    def decide(self, device: int, step: Step, weight: float) -> Decision:
        """What part of the step counts, which weighs so much by its samples. Changes nothing."""
        size = weight * norm(step.delta)
        known = self.records.get(device)
        agreement, standing = None, None if known is None else known.standing
        if self._trusted is not None:
            agreement = self._trusted.agreement(step.where, step.delta)
            standing = self._agreements.standing(standing or 0.0, agreement)
        norms = self._norms
        seen = Seen(step.where, step.delta, size, norms.usual, norms.spread, agreement, standing)
        found = self._kind.share(seen)
        share = float(np.float32(min(1.0, max(0.0, found)))) if isfinite(found) else 0.0
        return Decision(share, remembered(share, size, norms.usual), agreement, standing)

    def took(self, device: int, decision: Decision) -> None:
        """The update that was decided on has made a version."""
        self._norms.add(decision.norm)
        if decision.share and decision.agreement is not None:
            self._agreements.add(decision.agreement)
        if decision.share == 1 and decision.standing is None:
            return
        record = self.records.setdefault(device, Record())
        record.standing = decision.standing
        if decision.share == 1:
            return
        self.counts["clipped" if decision.share else "dropped"] += 1
        if decision.share:
            record.clipped += 1
        else:
            record.dropped += 1

    def pardon(self, device: int) -> bool:
        """Forget what is known of a device; whether anything was."""
        return self.records.pop(device, None) is not None
