"""What is wrong with the run: a strip above each page, and the lines of one device."""

from collections.abc import Sequence

from edgeflock.shared.protocol.frames import Finding
from edgeflock.tui.sources.state import State
from edgeflock.tui.text import numbers
from edgeflock.tui.text.lines import Ink, Line, Span, apart, crop

SIGNS: dict[str, tuple[str, Ink]] = {
    "critical": ("✕", "bad"),
    "warning": ("▲", "warn"),
    "notice": ("○", "dim"),
}


def strip(state: State, width: int) -> Line:
    """The worst finding, and how many more there are; empty if nothing is wrong."""
    found = state.overview.findings
    if not found:
        return []
    more = len(found) - 1 + state.overview.more_findings
    right: Span = (f" +{more:,} more " if more else " ", "dim")
    return apart(crop(line(found[0], state.time), max(0, width - len(right[0]))), [right], width)


def of_device(findings: Sequence[Finding], device: str, now: float, width: int) -> list[Line]:
    """What is wrong with it, and what to do, two lines each."""
    lines: list[Line] = []
    for finding in findings:
        if finding.device == device:
            lines += [
                crop(line(finding, now), width),
                crop([("   " + numbers.plain(finding.remedy), "dim")], width),
            ]
    return lines


def line(finding: Finding, now: float) -> Line:
    """What is wrong, with whom, and for how long."""
    sign, ink = SIGNS[finding.severity]
    told: Line = [(f" {sign} {finding.kind} ", ink)]
    if finding.device is not None:
        told.append((numbers.plain(finding.device) + " ", "strong"))
    return [
        *told,
        (numbers.plain(finding.text), "text"),
        (f", for {numbers.age(max(0.0, now - finding.since))}", "dim"),
    ]
