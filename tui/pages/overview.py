"""The overview page: the numbers and curves of a run."""

from edgeflock.shared.protocol.frames import RETURN, Evaluation, worst_class
from edgeflock.tui.pages import curves
from edgeflock.tui.pages.curves import PlotCurve, XAxis
from edgeflock.tui.pages.events import event_line
from edgeflock.tui.pages.parts import parts
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text import numbers
from edgeflock.tui.text.chart import (
    Axis,
    Series,
    bars,
    ceiling,
    chart,
    duration_ceiling,
    fit_axis,
    label_width,
)
from edgeflock.tui.text.lines import Ink, Line, Span, columns, fit, heading, join_blocks, justify, page

WINDOW = 300.0
"""The time range of the rate curves, in seconds."""

_DAY = 86400.0

_WIDE = 100
"""Cells. On a narrower screen, charts replace the numbers of secondary interest."""

_HIGH = 28
"""Lines. A screen of this height has room for a table of gateways."""

_EVENTS = 6
"""Lines of events below the charts, if there is room."""


def overview(state: MonitorState, x_axis: XAxis, width: int, height: int) -> list[Line]:
    """Return numbers, curves, and the newest events if there is room."""
    lines = [*overview_numbers(state, width), []]
    # On a low screen, gateways and shards have one line each. The curves need the rest.
    others = parts(state, width, 2 if height < _HIGH else min(9, height // 4))
    lines += [*others, []] if others else []
    space = height - len(lines)
    events = _EVENTS + 2 if space >= 34 else 0
    below = (space - events) // 2
    above = space - events - below
    upper = [_accuracy, _loss] if width < 112 else [_accuracy, _loss, _reduction]
    lower = [_traffic, _speed, _staleness]
    gap = 1 if above > 12 else 0
    for panels, rows in ((upper, above - gap), (lower, below)):
        widths = columns(width, len(panels))
        drawn = [(panel(state, x_axis, each, rows), each) for panel, each in zip(panels, widths, strict=True)]
        lines += join_blocks(drawn)
        lines += [[]] * (gap if panels is upper else 0)
    if events:
        lines += [[], heading("Events", [], width)]
        lines += [event_line(event, state.time, width) for event in state.events[-_EVENTS:]]
    return page(lines, width, height)


def overview_numbers(state: MonitorState, width: int) -> list[Line]:
    """Return two lines, the names and the numbers, and two more for each further row of numbers."""
    overview, traffic = state.overview, state.traffic
    newest = state.evaluations[-1] if state.evaluations else None
    tiles: list[Tile] = [
        _score(newest),
        ("loss", numbers.decimal(newest.loss if newest else overview.loss), "strong", 8),
        ("updates/s", numbers.rate(overview.updates_per_s), "strong", 10),
        ("up, vs dense", _dense_text(traffic.ingress, overview.reduction), "strong", 17),
        ("down, vs dense", _dense_text(traffic.egress, traffic.reduction_down), "strong", 17),
        ("both, vs dense", _dense_text(traffic.both, traffic.reduction_both_ways), "second", 16),
    ]
    if newest and (worst := worst_class(newest.classes)) is not None:
        tiles.insert(1, ("worst class", f"{worst[0]}: {numbers.percent(worst[1], 1)}", "first", 13))
    if overview.cnc is not None and 0 < overview.cnc < 1:
        tiles.append(("selections", numbers.percent(overview.cnc), "strong", 11))
    if overview.shared_samples:
        tiles.append(("shared", numbers.count(overview.shared_samples), "strong", 8))
    for name, value in (newest.metrics if newest else {}).items():
        if name == RETURN:
            continue
        tiles.append((name, numbers.decimal(value), "strong", max(8, len(name) + 2)))
    if (tasks := overview.tasks) is not None:
        tiles.append(("shards done", f"{tasks.finished} of {tasks.shards}", "strong", 12))
        tiles.append(("repeated", numbers.count(tasks.duplicates), "strong", 9))
    if (spent := overview.privacy) is not None:
        tiles.append(("epsilon", spent.text, "strong", 14))
        tiles.append(("delta", f"{spent.delta:.2g}", "strong", 9))
    if width >= _WIDE and overview.began is not None:
        elapsed = max(1.0, state.time - overview.began)
        share = _DAY / elapsed / max(1, overview.devices)
        tiles.append(("elapsed", numbers.duration(elapsed), "strong", 10))
        tiles.append(("up, a day and device", numbers.size(traffic.ingress * share), "strong", 21))
        tiles.append(("down, a day and device", numbers.size(traffic.egress * share), "strong", 23))
    dense: Tile = ("dense each way", numbers.size(overview.dense_bytes), "dim", 15)
    if sum(tile[3] for tile in [*tiles, dense]) <= width:
        tiles.append(dense)
    lines: list[Line] = []
    while tiles:
        fitting = [n for n in range(1, len(tiles) + 1) if sum(tile[3] for tile in tiles[:n]) <= width]
        shown = tiles[: max(fitting, default=1)]
        tiles = tiles[len(shown) :]
        extra = min(4, max(0, width - sum(tile[3] for tile in shown)) // len(shown))
        lines.append([(fit(label, minimum + extra), "dim") for label, _, _, minimum in shown])
        lines.append([(fit(value, minimum + extra), ink) for _, value, ink, minimum in shown])
    return lines


Tile = tuple[str, str, Ink, int]
"""The name of a number, its text, its ink, and its minimum width in cells."""


def _dense_text(octets: float, reduction: float | None) -> str:
    """Return the bytes and the reduction against dense float32."""
    return f"{numbers.size(octets)} {numbers.reduction(reduction)}"


def _score(newest: Evaluation | None) -> Tile:
    """Return the return of a policy, or the accuracy of any other model."""
    if newest and RETURN in newest.metrics:
        return "return", numbers.decimal(newest.metrics[RETURN]), "first", 9
    return "accuracy", numbers.percent(newest.accuracy, 2) if newest else numbers.NOTHING, "first", 9


def _accuracy(state: MonitorState, x_axis: XAxis, width: int, height: int) -> list[Line]:
    """Draw the returns of a policy, or the accuracy of any other model."""
    name, unit, top, curve = "Return", "", None, curves.returns(state, x_axis)
    if not curve.y:
        name, unit, top, curve = "Accuracy", "%", 100.0, curves.accuracy(state, x_axis)
    if not curve.y:
        failed = state.overview.evaluation_failed
        reason = "evaluation failed" if failed else "no evaluation with accuracy yet"
        return _empty(name, reason, width, height)
    values: Line = [
        (f"last 5 {curves.final_mean(curve):.4g}{unit}", "first"),
        (f"  best {max(curve.y):.4g}{unit}", "dim"),
    ]
    y = fit_axis(curve.y, lambda value: f"{value:.4g}{unit}", zero=False, top=top)
    return [heading(name, values, width), *_plot(state, x_axis, [(curve, "first")], y, width, height - 1)]


def _loss(state: MonitorState, x_axis: XAxis, width: int, height: int) -> list[Line]:
    test, training = curves.test_loss(state, x_axis), curves.training_loss(state, x_axis)
    if not test.y and not training.y:
        return _empty("Loss", "no update and no evaluation yet", width, height)
    legend: Line = [("test", "first")] if test.y else []
    if training.y:
        legend += [("  " if legend else "", "text"), ("training", "second")]
    y = fit_axis(curves.drop_outliers([*test.y, *training.y]), numbers.short, zero=True)
    series: list[tuple[PlotCurve, Ink]] = [(training, "second"), (test, "first")]
    return [heading("Loss", legend, width), *_plot(state, x_axis, series, y, width, height - 1)]


def _reduction(state: MonitorState, x_axis: XAxis, width: int, height: int) -> list[Line]:
    up, both = (curves.reduction(state, x_axis, field) for field in ("reduction", "reduction_both_ways"))
    if not up.y:
        return _empty("Against dense", "no update yet", width, height)
    values: Line = [
        (f"up {numbers.reduction(state.overview.reduction)}", "first"),
        (f"  both ways {numbers.reduction(state.traffic.reduction_both_ways)}", "second"),
    ]
    y = fit_axis([*up.y, *both.y], numbers.short_times, zero=False)
    series: list[tuple[PlotCurve, Ink]] = [(up, "first"), (both, "second")]
    return [heading("Against dense", values, width), *_plot(state, x_axis, series, y, width, height - 1)]


def _traffic(state: MonitorState, x_axis: XAxis, width: int, height: int) -> list[Line]:
    ingress = curves.recent_rate(state, "ingress_rate", WINDOW)
    egress = curves.recent_rate(state, "egress_rate", WINDOW)
    arrows: Line = [
        (f"↓{numbers.short_size(state.overview.ingress_rate)}", "first"),
        (f" ↑{numbers.short_size(state.overview.egress_rate)}", "second"),
    ]
    # Each has its own axis: on a shared axis, the smaller one would lie at zero.
    axes = [fit_axis(curve.y, numbers.short_size, zero=True) for curve in (ingress, egress)]
    gutter, above = max(map(label_width, axes)), (height - 2) // 2
    upper = _plot_recent([(ingress, "first")], axes[0], width, above + 1, gutter)[:-1]
    lower = _plot_recent([(egress, "second")], axes[1], width, height - 1 - above, gutter)
    return [heading("Bytes/s", arrows, width), *upper, *lower]


def _speed(state: MonitorState, x_axis: XAxis, width: int, height: int) -> list[Line]:
    curve = curves.recent_rate(state, "updates_per_s", WINDOW)
    value: Line = [(numbers.rate(state.overview.updates_per_s), "third")]
    y = fit_axis(curve.y, numbers.short, zero=True)
    return [heading("Updates/s", value, width), *_plot_recent([(curve, "third")], y, width, height - 1)]


def _staleness(state: MonitorState, x_axis: XAxis, width: int, height: int) -> list[Line]:
    counts = state.overview.staleness
    total = sum(counts)
    if not total:
        return _empty("Staleness", "no update yet", width, height)
    middle = next(n for n in range(len(counts)) if sum(counts[: n + 1]) * 2 >= total)
    labels = curves.bin_labels()
    value: Line = [("median ", "dim"), (f"{labels[middle]}{'+' if middle > 1 else ''}", "third")]
    return [heading("Staleness", value, width), *bars(labels, counts, "third", width, height - 1)]


def _plot(
    state: MonitorState, x_axis: XAxis, series: list[tuple[PlotCurve, Ink]], y: Axis, width: int, height: int
) -> list[Line]:
    last = max((curve.x[-1] for curve, _ in series if curve.x), default=0.0)
    end = duration_ceiling(last) if x_axis == "time" else ceiling(max(last, 1.0))
    x = Axis(0.0, end, curves.FORMS[x_axis])
    return chart([Series(curve.x, curve.y, ink) for curve, ink in series], x, y, width, height)


def _plot_recent(
    series: list[tuple[PlotCurve, Ink]], y: Axis, width: int, height: int, gutter: int = 0
) -> list[Line]:
    x = Axis(-WINDOW, 0.0, lambda seconds: "now" if seconds == 0 else f"-{numbers.span(-seconds)}")
    return chart([Series(curve.x, curve.y, ink) for curve, ink in series], x, y, width, height, gutter=gutter)


def _empty(title: str, reason: str, width: int, height: int) -> list[Line]:
    text: Span = (reason.center(width), "dim")
    return [heading(title, [], width), *[[]] * max(0, (height - 2) // 2), justify([text], [], width)]
