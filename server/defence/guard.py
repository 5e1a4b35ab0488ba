"""What a defence goes by, and what it did."""

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

import numpy as np

from edgeflock.server.defence.norms import HELD, UsualNorms
from edgeflock.server.defence.recent import KNOWN, RecentUpdates
from edgeflock.server.defence.rules import DEFENCES, AdmittedUpdate, remembered
from edgeflock.server.defence.standing import Agreements, faded
from edgeflock.server.defence.trusted import Cosines, Trusted
from edgeflock.server.descent import Step
from edgeflock.server.descent.steps import norm

_JUMP = 2.0
"""An update that is so many times as large as its device's were takes away all that speaks for the device."""

_SLOWLY = 4
"""Updates in which what is usual of a device's own follows."""

_NORM = struct.Struct("<d")
_JUDGED = struct.Struct("<dd3f")


@dataclass(frozen=True, slots=True)
class Decision:
    """On one update."""

    share: float
    """The part of it that counts, as float32 has it: 1 all, 0 nothing."""
    norm: float
    """What is `remembered` of its own."""
    agreement: Cosines | None = None
    """Of the update with what the server trusts; None: there is nothing."""
    standing: float | None = None
    """The device's, with this update."""
    excused: bool = field(default=False, compare=False)
    """Nothing of it counts, whatever it is: nothing is usual yet, or there are too many of them."""

    def packed(self) -> bytes:
        """As the journal keeps it beside the share."""
        if self.agreement is None or self.standing is None:
            return _NORM.pack(self.norm)
        return _JUDGED.pack(self.norm, self.standing, *self.agreement)


class DefenceDecision(NamedTuple):
    """What the journal has of a decision."""

    version: int
    """That the update made."""
    device: int
    share: float
    judged: bytes | None
    """`packed`; None: there was no defence."""

    def decision(self) -> Decision:
        """Raises struct.error if it cannot have been one."""
        if not self.judged:
            return Decision(self.share, 0.0)
        if len(self.judged) == _NORM.size:
            return Decision(self.share, *_NORM.unpack(self.judged))
        size, standing, *agreement = _JUDGED.unpack(self.judged)
        return Decision(self.share, size, Cosines(*agreement), standing)


@dataclass(slots=True)
class DefenceRecord:
    """What came of a device's updates."""

    clipped: int = 0
    dropped: int = 0
    standing: float | None = None
    """What its updates say for it, or against it (standing.py); None: nothing is known."""
    version: int = 0
    """That the last of them made that changed it."""
    size: float = 0.0
    """How many usual ones its own are as large as, in the long run; 0: nothing is known."""
    excused: bool = False
    """Whether the last one that did not count could not have."""

    def document(self) -> dict[str, float | None]:
        """What operators see."""
        return {"clipped": self.clipped, "dropped": self.dropped, "standing": self.standing}


class DefenceGuard:
    """Decides, and remembers what came of it: a function of what the journal has of its decisions, and of
    what it trusts. Nothing of it shapes a replay.
    """

    def __init__(self, name: str, past: Iterable[DefenceDecision] = (), held: int = HELD) -> None:
        """`name` is of DEFENCES. `past` is what it decided before, in order. Of a run's first updates, `held`
        of them only tell what is usual. Raises ConfigError.
        """
        self._kind = DEFENCES.known(name, "defence.mode")
        self._norms = UsualNorms(held)
        self._agreements = Agreements()
        self._recent = RecentUpdates()
        self._trusted: Trusted | None = None
        self.records: dict[int, DefenceRecord] = {}
        """device -> what came of its updates, of those with one."""
        self.counts = Counter[str]()
        """clipped and dropped."""
        for one in past:
            self.took(one.version, one.device, one.decision())

    @property
    def trusts(self) -> bool:
        """Whether it wants to know what to trust now and then."""
        return self._kind.trusts

    def wants(self, version: int, refresh: int) -> bool:
        """Whether it wants to know it anew at a version: each `refresh` updates."""
        known = self._trusted
        return self.trusts and (known is None or version // refresh > known.version // refresh)

    @property
    def is_anew(self) -> bool:
        """Whether it trusts nothing yet."""
        return self._trusted is None

    def record(self, device: int) -> DefenceRecord:
        """What came of a device's updates."""
        return self.records.get(device) or DefenceRecord()

    def trust(self, trusted: Trusted) -> None:
        """Go by this from now on."""
        self._trusted = trusted

    def decide(self, version: int, device: int, step: Step, weight: float) -> Decision:
        """What part of the step counts, which weighs so much by its samples and may make the version after
        this one. Changes nothing.
        """
        size = weight * norm(step.delta)
        norms = self._norms
        before, agreement = self._standing(version, device), None
        if before is not None and self._jumps(device, size):
            before = min(before, 0.0)
        standing = before
        if self._trusted is not None:
            agreement = self._trusted.agreement(step.where, step.delta)
            standing = self._agreements.standing(before or 0.0, agreement)
        spent = not self._recent.may_count(device, self._is_new(before))
        seen = AdmittedUpdate(
            step.where, step.delta, size, norms.usual, norms.spread, agreement, standing, spent
        )
        found = self._kind.share(seen)
        share = float(np.float32(min(1.0, max(0.0, found)))) if isfinite(found) else 0.0
        excused = not share and (spent or not norms.usual)
        return Decision(share, remembered(share, size, norms.usual), agreement, standing, excused)

    def took(self, version: int, device: int, decision: Decision) -> None:
        """The update that was decided on has made a version."""
        new = self._is_new(self._standing(version - 1, device))
        ratio = decision.norm / self._norms.usual if self._norms.usual else 0.0
        self._recent.add(version, device, bool(decision.share), new)
        self._norms.add(decision.norm)
        self._agreements.add(version, decision.agreement if decision.share else None)
        if decision.share == 1 and decision.standing is None:
            return
        record = self.records.setdefault(device, DefenceRecord())
        record.excused = decision.excused
        if decision.agreement is not None:
            record.standing, record.version = decision.standing, version
            if ratio:
                record.size += (ratio - record.size) / (_SLOWLY if record.size else 1)
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

    def _standing(self, version: int, device: int) -> float | None:
        """A device's at a version, before its next update."""
        known = self.records.get(device)
        if known is None or known.standing is None:
            return None
        return faded(known.standing, max(0, version - known.version))

    def _jumps(self, device: int, size: float) -> bool:
        """Whether an update is much larger than the device's own were, in usual ones."""
        own = self.record(device).size
        return 0 < own * _JUMP * self._norms.usual < size

    def _is_new(self, standing: float | None) -> bool:
        """Where nobody can tell, nobody is."""
        return self.trusts and (standing or 0.0) < KNOWN
