"""The two lines at the top: the run and its progress, the page and the age of its data."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from edgeflock.tui.pages.findings import SIGNS
from edgeflock.tui.sources.state import Freshness, LinkState, MonitorState
from edgeflock.tui.text import numbers
from edgeflock.tui.text.chart import meter
from edgeflock.tui.text.lines import Ink, Line, crop, justify, line_width
from edgeflock.tui.text.numbers import plain

Page = Literal["overview", "fleet", "events", "config", "findings", "device"]
PAGES: tuple[Page, ...] = ("overview", "fleet", "events", "config", "findings")


def header(state: MonitorState | None, link: LinkState, fresh: Freshness, source: str, width: int) -> Line:
    """Return the line with the run, its progress and the connection."""
    right: Line = [(" ", "text"), *connection(link, fresh)]
    if state is None:
        return justify([(" edgeflock ", "accent"), (" " + numbers.plain(source), "dim")], right, width)
    whole = _progress(state, width - line_width(right), with_run=True)
    if line_width(whole) + line_width(right) > width:
        whole = _progress(state, width - line_width(right), with_run=False)
    return justify(whole, right, width)


def _progress(state: MonitorState, room: int, *, with_run: bool) -> Line:
    """Return the model, the run's name if `with_run`, the progress, and a bar if there is room."""
    overview, target = state.overview, state.run.updates_target
    left, part = progress(state)
    model = numbers.plain(state.run.model.rpartition(":")[2] or state.run.model)
    line: Line = [(" edgeflock ", "accent"), (f" {model} ", "strong")]
    if with_run:
        line.append((f"{state.run.run[:8]}  ", "dim"))
    if overview.state == "training":
        line.append((f"{numbers.count(overview.version)}", "strong"))
    else:
        line.append((overview.state, "good" if overview.state == "finished" else "bad"))
        line.append((f" at {numbers.count(overview.version)}", "text"))
    line.append((f" of {numbers.count(target)} " if target else " updates ", "dim"))
    if overview.state != "training" or part is None:
        return line
    if left is not None:
        line.append((f"{numbers.age(left)} left ", "text"))
    free = room - line_width(line) - 4
    if free >= 6:
        full, rest = meter(part, min(free, 16))
        line += [(full, "accent"), (rest, "rule")]
    return line


def progress(state: MonitorState) -> tuple[float | None, float | None]:
    """Return (remaining seconds, finished part of the run). None means unknown.

    They are those of end.updates or end.seconds, the one that ends the run first.
    """
    overview, target = state.overview, state.run.updates_target
    config = state.run.config
    seconds = float(config.get("end", {}).get("seconds") or 0.0)
    limits: list[tuple[float, float]] = []
    if target:
        rate = overview.updates_per_s
        left = max(0, target - overview.version) / rate if rate > 0 else math.inf
        limits.append((left, overview.version / target))
    if seconds:
        elapsed = 0.0 if overview.began is None else state.time - overview.began
        limits.append(
            (math.inf if overview.began is None else max(0.0, seconds - elapsed), elapsed / seconds)
        )
    if not limits:
        return None, None
    left, part = min(limits, key=lambda end: (end[0], -end[1]))
    return left if math.isfinite(left) else None, min(1.0, max(0.0, part))


def connection(link: LinkState, fresh: Freshness) -> Line:
    """Return the state of the connection, with a sign."""
    old = fresh.age > max(3.0, 3 * fresh.interval)
    aged = f" · data {numbers.age(fresh.age)} old" if fresh.age != float("inf") else ""
    if fresh.frozen:
        lag = f" {numbers.age(fresh.lag)} back" if fresh.lag >= 0.5 else ""
        lost = f" · {link.phase}" if link.phase in ("waiting", "refused") else ""
        return [(f" ‖ frozen{lag}{lost} ", "chosen")]
    if link.phase == "live":
        return [(f"▲ stalled{aged} ", "warn")] if old else [("● live ", "good")]
    if link.phase == "connecting":
        return [(f"○ connecting{aged} ", "warn")]
    if link.phase == "waiting":
        retry = f", again in {fresh.retry_seconds:.0f}s" if fresh.retry_seconds is not None else ""
        return [(f"✕ {link.detail.partition(': ')[0] or 'no connection'}{retry}{aged} ", "bad")]
    if link.phase == "refused":
        return [(f"✕ {link.detail} ", "bad")]
    sign = "▶" if link.phase == "replay" else "■"
    return [(f"{sign} {link.detail} ", "accent")]


def placeholder(source: str, link: LinkState) -> list[Line]:
    """Return the text of a page while no state is known."""
    title: Line = [(source, "strong")]
    if link.phase == "refused":
        return [title, [], [(link.detail, "bad")]]
    if link.phase == "waiting":
        return [title, [], [(f"no run to show: {link.detail}", "bad")], [("trying again", "dim")]]
    return [title, [], [("connecting", "dim")]]


def menu(state: MonitorState | None, page: Page, width: int) -> Line:
    """Return the pages with their numbers, the number of connected devices, and the role."""
    counts: dict[Page, int] = {}
    if state is not None:
        counts = {"fleet": len(state.devices), "events": len(state.events)}
        if found := len(state.overview.findings) + state.overview.more_findings:
            counts["findings"] = found
    line: Line = [(" ", "text")]
    for number, name in enumerate(PAGES, 1):
        is_chosen = name == page or (page == "device" and name == "fleet")
        title = f" {number} {name.capitalize()}"
        if name in counts:
            title += f" {counts[name]:,}"
        line.append((title + " ", "chosen" if is_chosen else "dim"))
    if state is None:
        return crop(line, width)
    up = sum(row.state not in ("away", "paused") for row in state.devices.values())
    right: Line = [
        (f"{up:,}", "good" if up else "warn"),
        (f"/{len(state.devices):,} up  ", "dim"),
        (state.role + " ", "dim"),
    ]
    return justify(line, right, width)


class Tab(NamedTuple):
    sign: str
    """The sign of the connection, as in the header."""
    ink: Ink
    name: str
    status: str
    """The end of the run, and the sign of its worst finding."""


def tab(name: str, state: MonitorState | None, link: LinkState, fresh: Freshness) -> Tab:
    status: list[str] = []
    if state is not None:
        if state.overview.state != "training":
            status.append(state.overview.state)
        if state.overview.findings:
            status.append(SIGNS[state.overview.findings[0].severity][0])
    ((text, ink),) = connection(link, fresh)
    return Tab(text.strip()[0], "accent" if ink == "chosen" else ink, plain(name), " ".join(status))


def tab_line(tabs: Sequence[Tab], chosen: int, width: int) -> Line:
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
