"""The two lines at the top: the run and its progress, the page and the age of its data."""

import math
from typing import Literal

from edgeflock.tui.sources.link import Freshness, LinkState
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text import numbers
from edgeflock.tui.text.chart import meter
from edgeflock.tui.text.lines import Line, apart, crop, width_of

Page = Literal["overview", "fleet", "events", "config", "findings", "device"]
PAGES: tuple[Page, ...] = ("overview", "fleet", "events", "config", "findings")


def header(state: MonitorState | None, link: LinkState, fresh: Freshness, source: str, width: int) -> Line:
    """Return the line with the run, its progress and the connection."""
    right: Line = [(" ", "text"), *connection(link, fresh)]
    if state is None:
        return apart([(" edgeflock ", "accent"), (" " + numbers.plain(source), "dim")], right, width)
    whole = _progress(state, width - width_of(right), known=True)
    if width_of(whole) + width_of(right) > width:
        whole = _progress(state, width - width_of(right), known=False)
    return apart(whole, right, width)


def _progress(state: MonitorState, room: int, *, known: bool) -> Line:
    """Return the model, the run's name if `known`, the progress, and a bar if there is room."""
    overview, target = state.overview, state.run.updates_target
    left, part = progress(state)
    model = numbers.plain(state.run.model.rpartition(":")[2] or state.run.model)
    line: Line = [(" edgeflock ", "accent"), (f" {model} ", "strong")]
    if known:
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
    free = room - width_of(line) - 4
    if free >= 6:
        full, rest = meter(part, min(free, 16))
        line += [(full, "accent"), (rest, "rule")]
    return line


def progress(state: MonitorState) -> tuple[float | None, float | None]:
    """Return (remaining seconds, finished part of the run), by run.updates or run.seconds, whichever ends it
    first. None means unknown.
    """
    overview, target = state.overview, state.run.updates_target
    seconds = float(state.run.config.get("run", {}).get("seconds") or 0.0)
    ends: list[tuple[float, float]] = []
    if target:
        rate = overview.updates_per_s
        left = max(0, target - overview.version) / rate if rate > 0 else math.inf
        ends.append((left, overview.version / target))
    if seconds:
        past = 0.0 if overview.began is None else state.time - overview.began
        ends.append((math.inf if overview.began is None else max(0.0, seconds - past), past / seconds))
    if not ends:
        return None, None
    left, part = min(ends, key=lambda end: (end[0], -end[1]))
    return left if math.isfinite(left) else None, min(1.0, max(0.0, part))


def connection(link: LinkState, fresh: Freshness) -> Line:
    """Return the state of the connection, with a sign."""
    old = fresh.age > max(3.0, 3 * fresh.interval)
    aged = f" · data {numbers.age(fresh.age)} old" if fresh.age != float("inf") else ""
    if fresh.frozen:
        behind = f" {numbers.age(fresh.behind)} back" if fresh.behind >= 0.5 else ""
        lost = f" · {link.phase}" if link.phase in ("waiting", "refused") else ""
        return [(f" ‖ frozen{behind}{lost} ", "chosen")]
    if link.phase == "live":
        return [(f"▲ stalled{aged} ", "warn")] if old else [("● live ", "good")]
    if link.phase == "connecting":
        return [(f"○ connecting{aged} ", "warn")]
    if link.phase == "waiting":
        again = f", again in {fresh.again_in:.0f}s" if fresh.again_in is not None else ""
        return [(f"✕ {link.detail or 'no connection'}{again}{aged} ", "bad")]
    if link.phase == "refused":
        return [(f"✕ {link.detail} ", "bad")]
    sign = "▶" if link.phase == "replay" else "■"
    return [(f"{sign} {link.detail} ", "accent")]


def absent(source: str, link: LinkState) -> list[Line]:
    """Return the text of a page while no state is known."""
    where: Line = [(source, "strong")]
    if link.phase == "refused":
        return [where, [], [(link.detail, "bad")]]
    if link.phase == "waiting":
        return [where, [], [(f"no run to show: {link.detail}", "bad")], [("trying again", "dim")]]
    return [where, [], [("connecting", "dim")]]


def menu(state: MonitorState | None, page: Page, width: int) -> Line:
    """Return the pages with their numbers, the number of connected devices, and the role."""
    counts: dict[Page, int] = {}
    if state is not None:
        counts = {"fleet": len(state.devices), "events": len(state.events)}
        if found := len(state.overview.findings) + state.overview.more_findings:
            counts["findings"] = found
    line: Line = [(" ", "text")]
    for number, name in enumerate(PAGES, 1):
        on_it = name == page or (page == "device" and name == "fleet")
        title = f" {number} {name.capitalize()}"
        if name in counts:
            title += f" {counts[name]:,}"
        line.append((title + " ", "chosen" if on_it else "dim"))
    if state is None:
        return crop(line, width)
    up = sum(row.state not in ("away", "paused") for row in state.devices.values())
    right: Line = [
        (f"{up:,}", "good" if up else "warn"),
        (f"/{len(state.devices):,} up  ", "dim"),
        (state.role + " ", "dim"),
    ]
    return apart(line, right, width)
