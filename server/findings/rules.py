"""What is wrong: a pure function of a picture, and of what was found before.

Each rule has a bound at which its finding begins and one, easier to keep, at which it is over, so that a
number that wavers between them does not make it come and go. A finding keeps the time at which it began.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from edgeflock.server.findings import devices, fleet, run
from edgeflock.server.findings.picture import Picture
from edgeflock.server.findings.signs import Before, Sign
from edgeflock.shared.protocol.frames import Finding

Rule = Callable[[Picture, Before], Iterable[Sign]]

RULES: tuple[Rule, ...] = (*run.RULES, *fleet.RULES, *devices.RULES)

_ORDER = ("critical", "warning", "notice")


def findings(picture: Picture, before: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """All that is wrong, the worst first, of those the oldest; `before` is what was found last."""
    begun = {(one.kind, one.device): one.since for one in before}
    found = [
        Finding(*sign[:3], begun.get((sign.kind, sign.device), picture.time), sign.text, sign.remedy)
        for rule in RULES
        for sign in rule(picture, begun)
    ]
    return tuple(sorted(found, key=lambda one: (_ORDER.index(one.severity), one.since, one.device or "")))


@dataclass(frozen=True, slots=True)
class Changes:
    """What is new since a look before."""

    began: tuple[Finding, ...]
    over: tuple[Finding, ...]


def changes(before: Iterable[Finding], now: Iterable[Finding]) -> Changes:
    """Which findings begin, and which are over."""
    then, found = _by_subject(before), _by_subject(now)
    return Changes(
        tuple(one for key, one in found.items() if key not in then),
        tuple(one for key, one in then.items() if key not in found),
    )


def _by_subject(some: Iterable[Finding]) -> dict[tuple[str, str | None], Finding]:
    return {(one.kind, one.device): one for one in some}
