"""The state that a defence decides by, and its decisions."""

import struct
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

import numpy as np

from edgeflock.server.defence.norms import MIN_NORMS, UsualNorms
from edgeflock.server.defence.rules import DEFENCES, AdmittedUpdate, norm_to_record
from edgeflock.server.defence.standing import Agreements, Cosines, Trusted, decay_standing
from edgeflock.server.descent import Step
from edgeflock.server.descent.kernels import norm

LATEST = 256
"""How many of the latest versions, or of the latest updates that counted, are considered."""

REFRESH = 20
"""Versions from one gradient of the server's own to the next."""

_QUOTA = 4
"""A device may have this many times the average number of updates of a known device."""

_MIN_QUOTA = 16
"""A device may have this many in any case. New devices together may have a _QUOTA-th, or as many as
others."""

_MAX_AGE = 16 * LATEST
"""Versions after which an update is forgotten in any case."""

KNOWN_STANDING = 1.0
"""A device with this standing is no longer new."""


class RecentUpdates:
    """The latest updates that counted: their devices, and whether these were new."""

    def __init__(self) -> None:
        self._updates: deque[tuple[int, int, bool]] = deque()
        self._all, self._as_known = Counter[int](), Counter[int]()
        """device -> how many of its updates counted lately: all, and those it made while it was known."""
        self._kinds: deque[tuple[int, bool]] = deque()
        self._new = 0
        """How many of the latest updates that counted were from new devices."""

    def add(self, version: int, device: int, counted: bool, new: bool) -> None:
        """Record an update that has made `version`."""
        if counted:
            self._updates.append((version, device, new))
            self._kinds.append((version, new))
            self._count(device, new, 1)
            self._new += new
        while self._updates and self._updates[0][0] <= version - LATEST:
            _, oldest, was_new = self._updates.popleft()
            self._count(oldest, was_new, -1)
        while self._kinds and (len(self._kinds) > LATEST or self._kinds[0][0] <= version - _MAX_AGE):
            self._new -= self._kinds.popleft()[1]

    def may_count(self, device: int, new: bool) -> bool:
        """Whether one more update of `device` may count.

        The average share excludes new devices, because anybody can invent device names.
        """
        fair = _QUOTA * len(self._updates) / max(1, len(self._as_known))
        if self._all[device] >= max(_MIN_QUOTA, fair):
            return False
        limit = LATEST // _QUOTA
        return not new or self._new < limit or len(self._kinds) - self._new < limit

    def _count(self, device: int, new: bool, amount: int) -> None:
        for counts in (self._all,) if new else (self._all, self._as_known):
            counts[device] += amount
            if not counts[device]:
                del counts[device]


_JUMP_RATIO = 2.0
"""An update this many times as large as its device's earlier ones removes the device's positive standing."""

_SMOOTHING = 4
"""The time constant, in updates, of the average of a device's own norms."""

_NORM = struct.Struct("<d")
_JUDGEMENT = struct.Struct("<dd3f")


@dataclass(frozen=True, slots=True)
class Decision:
    share: float
    """The part of the update that counts, rounded to float32: 1 all, 0 nothing."""
    norm: float
    """The norm that is `norm_to_record` of the update."""
    agreement: Cosines | None = None
    """Cosines of the update with the trusted directions; None: there are none."""
    standing: float | None = None
    """The device's standing, this update included."""
    excused: bool = field(default=False, compare=False)
    """No update of the device could count: no usual norm is known yet, or its part was spent."""

    def pack(self) -> bytes:
        """Encode the decision, except its share, for the journal."""
        if self.agreement is None or self.standing is None:
            return _NORM.pack(self.norm)
        return _JUDGEMENT.pack(self.norm, self.standing, *self.agreement)


class DefenceDecision(NamedTuple):
    """A decision as the journal has it."""

    version: int
    """The version that the update made."""
    device: int
    share: float
    packed: bytes | None
    """`packed`; None: there was no defence."""

    def decision(self) -> Decision:
        """Decode the decision. Raises struct.error if `packed` is invalid."""
        if not self.packed:
            return Decision(self.share, 0.0)
        if len(self.packed) == _NORM.size:
            return Decision(self.share, *_NORM.unpack(self.packed))
        size, standing, *agreement = _JUDGEMENT.unpack(self.packed)
        return Decision(self.share, size, Cosines(*agreement), standing)


@dataclass(slots=True)
class DefenceRecord:
    """The decisions on a device's updates, summed up."""

    clipped: int = 0
    dropped: int = 0
    standing: float | None = None
    """The evidence for or against the device (standing.py); None: nothing is known."""
    version: int = 0
    """The version of the update that last changed `standing`."""
    size: float = 0.0
    """The average ratio of the device's norms to the usual norm; 0: nothing is known."""
    excused: bool = False
    """`Decision.excused` of the last recorded update."""

    def document(self) -> dict[str, float | None]:
        """Return the fields that operators see."""
        return {"clipped": self.clipped, "dropped": self.dropped, "standing": self.standing}


class DefenceGuard:
    """Decides on updates and keeps the state of the defence.

    The state depends only on the journaled decisions and the trusted directions. A replay does not depend on
    it.
    """

    def __init__(self, name: str, past: Iterable[DefenceDecision] = (), norms: int = MIN_NORMS) -> None:
        """`name` is a key of DEFENCES.

        `past` are the earlier decisions, in order. A run's first `norms` updates do not count: they only
        determine the usual norm. Raises ConfigError.
        """
        self._kind = DEFENCES.lookup(name, "defence.mode")
        self._norms = UsualNorms(norms)
        self._agreements = Agreements()
        self._recent = RecentUpdates()
        self._trusted: Trusted | None = None
        self.records: dict[int, DefenceRecord] = {}
        """device -> its record, if it has one."""
        self.counts = Counter[str]()
        """The numbers of clipped and of dropped updates."""
        for one in past:
            self.add_decision(one.version, one.device, one.decision())

    @property
    def needs_trusted(self) -> bool:
        """Whether the defence needs trusted directions."""
        return self._kind.trusts

    def needs_refresh(self, version: int) -> bool:
        """Whether the trusted directions must be computed again at `version`: every REFRESH updates."""
        trusted = self._trusted
        return self.needs_trusted and (trusted is None or version // REFRESH > trusted.version // REFRESH)

    @property
    def lacks_trusted(self) -> bool:
        """Whether there are no trusted directions yet."""
        return self._trusted is None

    def record(self, device: int) -> DefenceRecord:
        """Return a device's record."""
        return self.records.get(device) or DefenceRecord()

    def set_trusted(self, trusted: Trusted) -> None:
        """Use these trusted directions from now on."""
        self._trusted = trusted

    def decide(self, version: int, device: int, step: Step, weight: float) -> Decision:
        """Decide what part of a step counts.

        `weight` is its weight by samples. The step may make the version after `version`. Changes no state.
        """
        size = weight * norm(step.delta)
        norms = self._norms
        before, agreement = self._standing(version, device), None
        if before is not None and self._jumps(device, size):
            before = min(before, 0.0)
        standing = before
        if self._trusted is not None:
            agreement = self._trusted.agreement(step.indices, step.delta)
            standing = self._agreements.standing(before or 0.0, agreement)
        spent = not self._recent.may_count(device, self._is_new(before))
        update = AdmittedUpdate(
            step.indices, step.delta, size, norms.usual, norms.spread, agreement, standing, spent
        )
        found = self._kind.share(update)
        share = float(np.float32(min(1.0, max(0.0, found)))) if isfinite(found) else 0.0
        excused = not share and (spent or not norms.usual)
        return Decision(share, norm_to_record(share, size, norms.usual), agreement, standing, excused)

    def add_decision(self, version: int, device: int, decision: Decision) -> None:
        """Record that the update with this decision has made `version`."""
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
                record.size += (ratio - record.size) / (_SMOOTHING if record.size else 1)
        if decision.share == 1:
            return
        self.counts["clipped" if decision.share else "dropped"] += 1
        if decision.share:
            record.clipped += 1
        else:
            record.dropped += 1

    def pardon(self, device: int) -> bool:
        """Delete a device's record. Return whether there was one."""
        return self.records.pop(device, None) is not None

    def _standing(self, version: int, device: int) -> float | None:
        """Return a device's standing at `version`, before its next update; None if nothing is known."""
        record = self.records.get(device)
        if record is None or record.standing is None:
            return None
        return decay_standing(record.standing, max(0, version - record.version))

    def _jumps(self, device: int, size: float) -> bool:
        """Whether an update's norm is much larger than the device's earlier norms."""
        own = self.record(device).size
        return 0 < own * _JUMP_RATIO * self._norms.usual < size

    def _is_new(self, standing: float | None) -> bool:
        """Whether the device is new. Without trusted directions, no device is new."""
        return self.needs_trusted and (standing or 0.0) < KNOWN_STANDING
