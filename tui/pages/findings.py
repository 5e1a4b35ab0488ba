"""Findings: a strip above each page, a page of all findings, and the lines of one device."""

from collections.abc import Sequence

from edgeflock.shared.protocol.frames import Finding
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text import numbers
from edgeflock.tui.text.lines import Ink, Line, Span, crop, fit, justify, notice, page, wrap_text

SIGNS: dict[str, tuple[str, Ink]] = {
    "critical": ("✕", "bad"),
    "warning": ("▲", "warn"),
    "notice": ("○", "dim"),
}


def strip(state: MonitorState | None, width: int) -> Line:
    """Return the worst finding and the number of others. The line is empty without findings."""
    if state is None or not (found := state.overview.findings):
        return []
    more = len(found) - 1 + state.overview.more_findings
    right: Span = (f" +{more:,} more " if more else " ", "dim")
    return justify(crop(finding_line(found[0], state.time), max(0, width - len(right[0]))), [right], width)


def worst_finding(findings: Sequence[Finding], device: str) -> Finding | None:
    return next((finding for finding in findings if finding.device == device), None)


def findings_page(state: MonitorState, cursor: int, width: int, height: int) -> list[Line]:
    """Return all findings with remedies, the worst first. The one at place `cursor` is chosen and visible."""
    found, more = state.overview.findings, state.overview.more_findings
    if not found:
        return notice([[("nothing is wrong", "dim")]], width, height)
    blocks = [
        _block(finding, state.time, width, is_chosen=number == cursor) for number, finding in enumerate(found)
    ]
    rows, first = height - 1, 0
    while first < cursor and sum(map(len, blocks[first : cursor + 1])) > rows:
        first += 1
    lines = [line for block in blocks[first:] for line in block][:rows]
    about = f"{len(found):,} finding{'s' * (len(found) != 1)}, the worst first" + (
        f"; {more:,} more that are less grave" * bool(more)
    )
    return page([*lines, *[[]] * (rows - len(lines)), [(about, "dim")]], width, height)


def _block(finding: Finding, now: float, width: int, *, is_chosen: bool) -> list[Line]:
    """Return the full text and remedy of a finding."""
    text = "".join(text for text, _ in finding_line(finding, now)).strip()
    first, *others = wrap_text(text, width - 4)
    meaning: Ink = "cursor" if is_chosen else SIGNS[finding.severity][1]
    lines: list[Line] = [[(fit(f" {first}", width), meaning)]]
    lines += [[(f"   {part}", "text")] for part in others]
    lines += [[(f"   {part}", "dim")] for part in wrap_text(numbers.plain(finding.remedy), width - 4)]
    return lines


def device_findings(findings: Sequence[Finding], device: str, now: float, width: int) -> list[Line]:
    """Return the findings about a device with their remedies, two lines each."""
    lines: list[Line] = []
    for finding in findings:
        if finding.device == device:
            lines += [
                crop(finding_line(finding, now), width),
                crop([("   " + numbers.plain(finding.remedy), "dim")], width),
            ]
    return lines


def finding_line(finding: Finding, now: float) -> Line:
    """Return a finding's kind, device, text and age."""
    sign, ink = SIGNS[finding.severity]
    spans: Line = [(f" {sign} {finding.kind} ", ink)]
    if finding.device is not None:
        spans.append((numbers.plain(finding.device) + " ", "strong"))
    return [
        *spans,
        (numbers.plain(finding.text), "text"),
        (f", for {numbers.age(max(0.0, now - finding.since))}", "dim"),
    ]
