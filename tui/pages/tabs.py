"""Several servers: a tab each, with what state it is in."""

from collections.abc import Sequence
from typing import NamedTuple

from edgeflock.tui.pages.findings import SIGNS
from edgeflock.tui.pages.header import connection
from edgeflock.tui.sources.link import Freshness, LinkState
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text.lines import Ink, Line, crop, width_of
from edgeflock.tui.text.numbers import plain


class Tab(NamedTuple):
    """What stands on it."""

    sign: str
    """Of its connection: as at the right of its own header."""
    ink: Ink
    name: str
    said: str
    """What of its run needs to be known: that it is over, or that something is wrong."""


def tab(name: str, state: MonitorState | None, link: LinkState, fresh: Freshness) -> Tab:
    """One server."""
    said: list[str] = []
    if state is not None:
        if state.overview.state != "training":
            said.append(state.overview.state)
        if state.overview.findings:
            said.append(SIGNS[state.overview.findings[0].severity][0])
    ((text, ink),) = connection(link, fresh)
    return Tab(text.strip()[0], "accent" if ink == "chosen" else ink, plain(name), " ".join(said))


def tab_line(tabs: Sequence[Tab], chosen: int, width: int) -> Line:
    """All of them beside each other."""
    line: Line = [(" ", "text")]
    for number, one in enumerate(tabs):
        line += _spans(one, on_it=number == chosen)
    return crop(line, width)


def tab_at(tabs: Sequence[Tab], x: int) -> int | None:
    """The tab at this cell of the line."""
    end = 1
    for number, one in enumerate(tabs):
        start, end = end, end + width_of(_spans(one, on_it=False))
        if start <= x < end - 1:
            return number
    return None


def _spans(one: Tab, *, on_it: bool) -> Line:
    text = f"{one.name} {one.said} " if one.said else f"{one.name} "
    if on_it:
        return [(f" {one.sign} {text}", "chosen"), (" ", "text")]
    return [(f" {one.sign} ", one.ink), (text, "dim"), (" ", "text")]
