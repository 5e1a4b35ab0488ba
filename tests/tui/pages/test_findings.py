"""What is wrong, as lines."""

from dataclasses import replace

import pytest

from edgeflock.shared.protocol.frames import Finding
from edgeflock.tui.pages import device_page, summary
from edgeflock.tui.pages.findings import findings_page, strip
from edgeflock.tui.pages.fleet import COLUMNS, View
from edgeflock.tui.pages.table import DeviceTable, Window, fleet_page
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text.lines import line_width, plain_text
from tests.tui.runs import state


def unwell(*findings: Finding) -> MonitorState:
    made = state(14, 60)
    return replace(made, overview=replace(made.overview, findings=findings, more_findings=3))


LABELS = Finding("disagrees", "warning", "pi4-5", 0.0, "its updates point away", "look at its labels")
DISK = Finding("disk", "critical", None, 0.0, "the disk is nearly full", "make room")


def test_the_strip_has_the_worst_and_how_many_more() -> None:
    reported = unwell(DISK, LABELS)
    reported = replace(reported, time=240.0)
    assert (
        plain_text([strip(reported, 80)]).strip().split("  ")[0] == "✕ disk the disk is nearly full, for 4m"
    )
    assert plain_text([strip(reported, 80)]).rstrip().endswith("+4 more")
    for width in (20, 40, 80, 200):
        assert line_width(strip(reported, width)) <= width
    assert strip(state(14, 60), 80) == []


@pytest.mark.parametrize("size", [(20, 6), (80, 5), (80, 24), (140, 44)])
def test_the_page_has_all_and_the_chosen_one_is_in_sight(size: tuple[int, int]) -> None:
    width, height = size
    many = [
        Finding("hot", "warning", f"pi4-{n}", 0.0, f"it is at {n} degrees, and has been for long", "cool it")
        for n in range(50)
    ]
    reported = unwell(DISK, *many)
    for at in range(51):
        lines = findings_page(reported, at, width, height)
        assert len(lines) == height
        assert all(line_width(line) == width for line in lines)
        (chosen,) = [text for line in lines for text, ink in line if ink == "cursor"]
        assert (f"pi4-{at - 1} " if at else "disk") in chosen
    whole = plain_text(findings_page(reported, 0, 80, 200))
    for n in range(50):
        assert f"it is at {n} degrees, and has been for long" in whole
    assert "51 findings, the worst first; 3 more that are less grave" in whole
    assert "nothing is wrong" in plain_text(findings_page(state(14, 60), 0, 80, 24))


def test_the_table_marks_the_devices_that_a_finding_names() -> None:
    hotter = Finding("hot", "critical", "pi4-5", 0.0, "it is hot", "cool it")

    def table(of: MonitorState) -> str:
        shown = DeviceTable(list(of.devices.values()), COLUMNS[1:], View(), Window(cursor=-1))
        return plain_text(fleet_page(of, shown, 100, 20))

    reported = table(unwell(hotter, LABELS))
    (row,) = [line for line in reported.splitlines() if " pi4 " in line and "pi4-5" in line]
    assert row.startswith(" ✕ pi4-5 "), "the worst that is wrong with it"
    assert "✕ pi4-10" not in reported
    assert "✕ pi4-5" not in table(state(14, 60))


def test_a_device_s_page_has_its_own_and_what_to_do() -> None:
    reported = unwell(DISK, LABELS)
    row = next(row for row in reported.devices.values() if row.name == "pi4-5")
    lines = plain_text(device_page(reported, row, (), 100, 40))
    assert "▲ disagrees pi4-5 its updates point away" in lines
    assert "look at its labels" in lines
    assert "nearly full" not in lines


def test_why_a_device_left_is_on_its_page() -> None:
    reported = state(14, 60)
    row = next(row for row in reported.devices.values() if row.state == "away")
    assert row.why_left is not None
    assert f"away: {row.why_left}" in plain_text(device_page(reported, row, (), 100, 40))


def test_without_a_screen_all_are_there() -> None:
    reported = summary(unwell(DISK, LABELS))["findings"]
    assert [finding["text"] for finding in reported] == ["the disk is nearly full", "its updates point away"]
    assert reported[1]["remedy"] == "look at its labels"
