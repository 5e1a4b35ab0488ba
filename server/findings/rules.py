"""What is wrong: a pure function of a picture, and of what the looks before it left.

Two things keep a finding from coming and going. A rule has a bound at which its finding begins, and an easier
one at which the finding is over. And the cause has to last: a finding begins once the rule has said so, at
each look, for some seconds, and is over once the rule has been silent for longer.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from edgeflock.server.findings import devices, fleet, lost_classes, run
from edgeflock.server.findings.picture import Picture
from edgeflock.server.findings.signs import Before, Sign, Subject
from edgeflock.shared.protocol.frames import Finding, FindingKind

Rule = Callable[[Picture, Before], Iterable[Sign]]

RULES: tuple[Rule, ...] = (*run.RULES, *fleet.RULES, *lost_classes.RULES, *devices.RULES)

_ORDER = ("critical", "warning", "notice")

_HOLD = (10.0, 60.0)
"""Seconds that a cause lasts before its finding begins, and that it is gone before the finding is over."""

_HOLDS: Mapping[FindingKind, tuple[float, float]] = {
    # Facts that no noise is in: an operator acts on them, and what was done shows at once.
    "diverged": (0.0, 0.0),
    "targets": (0.0, 0.0),
    "held-out": (0.0, 60.0),
    "disk": (0.0, 60.0),
    # Devices tell these every ten seconds or so.
    "hot": (0.0, 60.0),
    "clock": (0.0, 60.0),
    "undervoltage": (0.0, 60.0),
    "throttled": (0.0, 60.0),
    # Their rules count time themselves.
    "silent": (0.0, 30.0),
    "gone": (0.0, 30.0),
    "stalled": (0.0, 0.0),
    "flapping": (0.0, 0.0),
    # Somebody who tries something out for half a minute knows it.
    "unevaluated": (30.0, 0.0),
    # Two of its evaluations may be minutes apart.
    "overfitting": (10.0, 120.0),
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a look has found, and what the next one has to know of it."""

    findings: tuple[Finding, ...] = ()
    """What is wrong, the worst first, of those the oldest."""
    pending: Mapping[Subject, float] = field(default_factory=dict)
    """Signs that have not lasted long enough, and since when there are."""
    missing: Mapping[Subject, float] = field(default_factory=dict)
    """Findings whose sign is gone, and since when it is."""


def diagnose(picture: Picture, before: Diagnosis = Diagnosis()) -> Diagnosis:
    """What is wrong now; `before` is what came of the last look. A finding is as old as its first sign."""
    now = picture.time
    begun = {subject_of(one): one for one in before.findings}
    signs = {(sign.kind, sign.device): sign for rule in RULES for sign in rule(picture, begun)}
    found: list[Finding] = []
    pending: dict[Subject, float] = {}
    missing: dict[Subject, float] = {}
    for subject, sign in signs.items():
        one = begun.get(subject)
        since = before.pending.get(subject, now) if one is None else one.since
        if one is None and now - since < _HOLDS.get(sign.kind, _HOLD)[0]:
            pending[subject] = since
        else:
            found.append(Finding(*sign[:3], since, sign.text, sign.remedy))
    for subject, one in begun.items():
        if subject not in signs:
            gone = before.missing.get(subject, now)
            if now - gone < _HOLDS.get(one.kind, _HOLD)[1]:
                missing[subject] = gone
                found.append(one)
    found.sort(key=lambda one: (_ORDER.index(one.severity), one.since, one.device or ""))
    return Diagnosis(tuple(found), pending, missing)


@dataclass(frozen=True, slots=True)
class FindingChanges:
    """What is new since a look before."""

    began: tuple[Finding, ...]
    over: tuple[Finding, ...]


def changes(before: Iterable[Finding], now: Iterable[Finding]) -> FindingChanges:
    """Which findings begin, and which are over."""
    then, found = ({subject_of(one): one for one in some} for some in (before, now))
    return FindingChanges(
        tuple(one for key, one in found.items() if key not in then),
        tuple(one for key, one in then.items() if key not in found),
    )


def subject_of(finding: Finding) -> Subject:
    """What it is a finding of."""
    return finding.kind, finding.device
