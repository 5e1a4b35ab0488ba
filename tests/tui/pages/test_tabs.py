"""What stands on the tabs of several servers, and above a page."""

from dataclasses import replace

from edgeflock.shared.protocol.frames import Finding
from edgeflock.tui.pages.header import find_tab, menu, tab, tab_line
from edgeflock.tui.sources.state import Freshness, LinkState
from edgeflock.tui.text.lines import plain_text
from tests.tui.runs import state


def test_tabs_show_the_state_of_each_server() -> None:
    made = state(14, 5)
    hot = Finding("hot", "critical", "pi4-5", 0.0, "it is hot", "cool it")
    ill = replace(made, overview=replace(made.overview, state="diverged", findings=(hot,)))
    tabs = [
        tab("one", made, LinkState("live"), Freshness(0.0)),
        tab("two", ill, LinkState("live"), Freshness(60.0)),
        tab("three", None, LinkState("waiting", "connection refused"), Freshness(float("inf"))),
    ]
    line = plain_text([tab_line(tabs, 1, 80)])
    assert line == "  ● one   ▲ two diverged ✕   ✕ three"
    for number, name in enumerate(("one", "two", "three")):
        assert find_tab(tabs, line.index(name)) == number
    assert find_tab(tabs, 0) is None
    assert find_tab(tabs, 79) is None


def test_a_paused_device_is_not_up() -> None:
    made = state(14, 60)
    standing = [row.state for row in made.devices.values()]
    assert (standing.count("paused"), standing.count("away")) == (1, 1)
    assert "12/14 up" in plain_text([menu(made, "overview", 80)])
