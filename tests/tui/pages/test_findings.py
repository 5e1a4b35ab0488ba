"""What is wrong, as lines."""

from dataclasses import replace

from edgeflock.shared.protocol.frames import Finding
from edgeflock.tui.pages import block, device_page, summary
from edgeflock.tui.pages.findings import strip
from edgeflock.tui.sources.state import State
from edgeflock.tui.text.lines import text_of, width_of
from tests.tui.runs import state


def unwell(*findings: Finding) -> State:
    made = state(14, 60)
    return replace(made, overview=replace(made.overview, findings=findings, more_findings=3))


LABELS = Finding("disagrees", "warning", "pi4-5", 0.0, "its updates point away", "look at its labels")
DISK = Finding("disk", "critical", None, 0.0, "the disk is nearly full", "make room")


def test_the_strip_has_the_worst_and_how_many_more() -> None:
    told = unwell(DISK, LABELS)
    told = replace(told, time=240.0)
    assert text_of([strip(told, 80)]).strip().split("  ")[0] == "✕ disk the disk is nearly full, for 4m"
    assert text_of([strip(told, 80)]).rstrip().endswith("+4 more")
    for width in (20, 40, 80, 200):
        assert width_of(strip(told, width)) <= width
    assert strip(state(14, 60), 80) == []


def test_a_device_s_page_has_its_own_and_what_to_do() -> None:
    told = unwell(DISK, LABELS)
    row = next(row for row in told.devices.values() if row.name == "pi4-5")
    lines = text_of(device_page(told, row, (), {}, 100, 40))
    assert "▲ disagrees pi4-5 its updates point away" in lines
    assert "look at its labels" in lines
    assert "nearly full" not in lines


def test_why_a_device_left_is_on_its_page() -> None:
    told = state(14, 60)
    row = next(row for row in told.devices.values() if row.state == "away")
    assert row.why_left is not None
    assert f"away: {row.why_left}" in text_of(device_page(told, row, (), {}, 100, 40))


def test_without_a_screen_all_are_there() -> None:
    told = unwell(DISK, LABELS)
    lines = text_of(block(told, "run", 120))
    assert "the disk is nearly full" in lines
    assert "its updates point away" in lines
    assert summary(told)["findings"][1]["remedy"] == "look at its labels"
