"""Diagnosis: a pure function of a run's status and of the last diagnosis.

Two rules keep a finding from coming and going. First, a finding begins at one bound and ends at an easier
one. Second, the cause must last: a finding begins once its sign has been there for some seconds, at each
check. It ends once the sign has been absent for longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgeflock.server.findings import devices, fleet, run
from edgeflock.server.findings.status import Rule, RunStatus, Subject
from edgeflock.shared.protocol.frames import Finding, FindingKind

RULES: tuple[Rule, ...] = (*run.RULES, *fleet.RULES, *devices.RULES)

_ORDER = ("critical", "warning", "notice")

_HOLD = (10.0, 60.0)
"""Seconds that a cause lasts before its finding begins, and is absent before the finding ends."""

_HOLDS: Mapping[FindingKind, tuple[float, float]] = {
    # Facts without noise: an operator acts on them, and the effect shows at once.
    "diverged": (0.0, 0.0),
    "targets": (0.0, 0.0),
    "held-out": (0.0, 60.0),
    "disk": (0.0, 60.0),
    # Devices report these about every ten seconds.
    "hot": (0.0, 60.0),
    "clock": (0.0, 60.0),
    "undervoltage": (0.0, 60.0),
    "outdated": (0.0, 0.0),
    "throttled": (0.0, 60.0),
    # Their rules count time themselves.
    "silent": (0.0, 30.0),
    "gone": (0.0, 30.0),
    "stalled": (0.0, 0.0),
    "flapping": (0.0, 0.0),
    # Short trial runs need no notice.
    "unevaluated": (30.0, 0.0),
    # Two of its evaluations may be minutes apart.
    "overfitting": (10.0, 120.0),
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of a check, and the state that the next check needs."""

    findings: tuple[Finding, ...] = ()
    """Current findings, the worst first, then the oldest."""
    pending: Mapping[Subject, float] = field(default_factory=dict)
    """Signs that have not lasted long enough, and since when they exist."""
    missing: Mapping[Subject, float] = field(default_factory=dict)
    """Findings whose sign is gone, and since when it is gone."""
    began: tuple[Finding, ...] = ()
    """Findings that the check before did not have."""
    ended: tuple[Finding, ...] = ()
    """Findings of the check before that are over."""


def diagnose(status: RunStatus, previous: Diagnosis = Diagnosis()) -> Diagnosis:
    """Return the findings, given the `previous` diagnosis. A finding is as old as its first sign."""
    now = status.time
    active = {subject_of(one): one for one in previous.findings}
    signs = {(sign.kind, sign.device): sign for rule in RULES for sign in rule(status, active)}
    found: list[Finding] = []
    pending: dict[Subject, float] = {}
    missing: dict[Subject, float] = {}
    for subject, sign in signs.items():
        one = active.get(subject)
        since = previous.pending.get(subject, now) if one is None else one.since
        if one is None and now - since < _HOLDS.get(sign.kind, _HOLD)[0]:
            pending[subject] = since
        else:
            found.append(Finding(*sign[:3], since, sign.text, sign.remedy))
    for subject, one in active.items():
        if subject not in signs:
            missing_since = previous.missing.get(subject, now)
            if now - missing_since < _HOLDS.get(one.kind, _HOLD)[1]:
                missing[subject] = missing_since
                found.append(one)
    found.sort(key=lambda one: (_ORDER.index(one.severity), one.since, one.device or ""))
    began = tuple(one for one in found if subject_of(one) not in active)
    ended = tuple(one for subject, one in active.items() if not (subject in signs or subject in missing))
    return Diagnosis(tuple(found), pending, missing, began, ended)


def subject_of(finding: Finding) -> Subject:
    return finding.kind, finding.device
