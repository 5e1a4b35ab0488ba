"""Tabs for several servers, each with its state."""

from collections.abc import Sequence
from typing import NamedTuple

from edgeflock.tui.pages.findings import SIGNS
from edgeflock.tui.pages.header import connection
from edgeflock.tui.sources.link import Freshness, LinkState
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text.lines import Ink, Line, crop, line_width
from edgeflock.tui.text.numbers import plain


class Tab(NamedTuple):
    """The contents of a tab."""

    sign: str
    """The sign of the connection, as in the header."""
    ink: Ink
    name: str
    status: str
    """The end of the run, and the sign of its worst finding."""


def tab(name: str, state: MonitorState | None, link: LinkState, fresh: Freshness) -> Tab:
    """Return the tab of one server."""
    status: list[str] = []
    if state is not None:
        if state.overview.state != "training":
            status.append(state.overview.state)
        if state.overview.findings:
            status.append(SIGNS[state.overview.findings[0].severity][0])
    ((text, ink),) = connection(link, fresh)
    return Tab(text.strip()[0], "accent" if ink == "chosen" else ink, plain(name), " ".join(status))


def tab_line(tabs: Sequence[Tab], chosen: int, width: int) -> Line:
    """Return the line of all tabs."""
    line: Line = [(" ", "text")]
    for number, one in enumerate(tabs):
        line += _spans(one, is_chosen=number == chosen)
    return crop(line, width)


def find_tab(tabs: Sequence[Tab], x: int) -> int | None:
    """Return the index of the tab at this cell of the line, if there is one."""
    end = 1
    for number, one in enumerate(tabs):
        start, end = end, end + line_width(_spans(one, is_chosen=False))
        if start <= x < end - 1:
            return number
    return None


def _spans(one: Tab, *, is_chosen: bool) -> Line:
    text = f"{one.name} {one.status} " if one.status else f"{one.name} "
    if is_chosen:
        return [(f" {one.sign} {text}", "chosen"), (" ", "text")]
    return [(f" {one.sign} ", one.ink), (text, "dim"), (" ", "text")]
