"""`edgeflock plot`: the overview of `edgeflock top` as a figure, of a server, a recording or a journal."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from edgeflock.operations.top import open_recording
from edgeflock.results.figures import COLOURS, GRID, label_axes, new_figure
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.protocol import feed
from edgeflock.tui.pages import PlotCurve, XAxis, curves
from edgeflock.tui.sources import FeedClient, MonitorState, reduce, with_history
from edgeflock.tui.text import numbers
from edgeflock.tui.text.chart import round_times

_LABELS: dict[XAxis, str] = {
    "time": "since the run began",
    "updates": "updates",
    "bytes": "bytes that the server received and sent",
}

_FILES = (".rec", ".sqlite", ".jsonl")
"""What names of recordings and journals end in, and names of hosts do not."""


def plot(source: str, token: str, x_axis: str, out: Path, seconds: float, *, as_json: bool) -> None:
    """Draw `source` (a URL, a recording or a journal) into `out`, a .png or .svg.

    A live server sends rates only while it is watched, which is `seconds` long. Raises EdgeflockError.
    """
    if x_axis not in curves.X_AXES:
        raise ConfigError(f"--against {x_axis!r} must be one of {', '.join(curves.X_AXES)}")
    if out.suffix not in (".png", ".svg"):
        raise ConfigError(f"--out {out}: must end in .png or .svg")
    path = Path(source)
    if (path / "journal.sqlite").is_file():
        path /= "journal.sqlite"
    if path.is_file():
        recording = open_recording(path)
        state = recording.state(len(recording) - 1)
    elif path.is_dir() or path.suffix in _FILES:
        raise ConfigError(f"{source} holds no recording and no journal; name one, or a server's URL")
    else:
        state = asyncio.run(watch_run(FeedClient(source, token), seconds))
    try:
        draw(state, x_axis, out)
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {error.strerror}") from error
    if as_json:
        print(json.dumps({"figure": str(out), "run": state.run.run, "version": state.overview.version}))
    else:
        print(out)


async def watch_run(client: FeedClient, seconds: float) -> MonitorState:
    """Return the state after watching a server for `seconds`, or after its first frame if 0."""
    state: MonitorState | None = None
    try:
        async with asyncio.timeout(seconds if seconds > 0 else None):
            async for octets in client.frames():
                begins = state is None
                state = reduce(state, feed.decode(octets))
                if begins:
                    state = with_history(state, await client.history())
                if seconds <= 0:
                    break
    except TimeoutError:
        pass
    if state is None:
        raise EdgeflockError(f"no frame from {client.name} within {seconds:g} s; watch longer with --seconds")
    return state


def draw(state: MonitorState, x_axis: XAxis, out: Path) -> None:
    """Draw six panels: learning curves above, costs below."""
    figure, (accuracy, loss, reduction, traffic, speed, staleness) = new_figure(2, 3, 13.0, 7.0)
    window = max(10.0, state.time - state.trend[0].time)

    learned, name, axis, unit = curves.returns(state, x_axis), "Return", "mean return", ""
    if not learned.y:
        learned, name, axis, unit = curves.accuracy(state, x_axis), "Accuracy", "test accuracy (%)", "%"
    if learned.y:
        name += f": last five {curves.final_mean(learned):.2f}{unit}, best {max(learned.y):.2f}{unit}"
    _panel(accuracy, name, axis, [("", learned)], x_axis)
    losses = [("test", curves.test_loss(state, x_axis)), ("training", curves.training_loss(state, x_axis))]
    _panel(loss, "Loss", "loss", losses, x_axis)
    if seen := curves.drop_outliers([value for _, curve in losses for value in curve.y]):
        loss.set_ylim(0, 1.05 * max(*seen, 1e-9))
    saved = [(name, curves.reduction(state, x_axis, field)) for name, field in _REDUCTIONS]
    _panel(reduction, "Against dense float32", "times less", saved, x_axis)
    rates = [(name, curves.recent_rate(state, field, window)) for name, field in _RATES]
    rates = [(name, curve) for name, curve in rates if any(curve.y)]  # a journal has no egress rate
    _panel(traffic, "Traffic", "bytes a second", rates, None)
    traffic.yaxis.set_major_formatter(FuncFormatter(_formatter(numbers.short_size)))
    _panel(
        speed, "Speed", "updates a second", [("", curves.recent_rate(state, "updates_per_s", window))], None
    )
    counts = state.overview.staleness
    staleness.bar(range(len(counts)), counts, color=COLOURS[2], width=0.8)
    staleness.set_xticks(range(len(counts)), curves.bin_labels(), fontsize=8)
    _frame(staleness, "Staleness", "updates", "versions behind, at least")

    run = state.run
    title = f"{run.model}, run {run.run}, version {state.overview.version:,}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, color="#555555")
    figure.tight_layout(w_pad=2, h_pad=2)
    figure.savefig(out, dpi=150, metadata={"Date": None} if out.suffix == ".svg" else None)
    pyplot.close(figure)


_REDUCTIONS: tuple[tuple[str, curves.Reduction], ...] = (
    ("up", "reduction"),
    ("both ways", "reduction_both_ways"),
)
_RATES: tuple[tuple[str, curves.Rate], ...] = (("received", "ingress_rate"), ("sent", "egress_rate"))


def _panel(
    axes: Axes, title: str, label: str, lines: list[tuple[str, PlotCurve]], x_axis: XAxis | None
) -> None:
    for colour, (name, curve) in zip(COLOURS, lines, strict=False):
        marker = "o" if len(curve.x) == 1 else None
        if curve.x:
            axes.plot(curve.x, curve.y, color=colour, linewidth=1.6, marker=marker, label=name)
    if not any(curve.x for _, curve in lines):
        axes.text(0.5, 0.5, "nothing known", ha="center", color="#888888", transform=axes.transAxes)
    if any(name and curve.x for name, curve in lines):
        axes.legend(frameon=False, fontsize=8)
    axes.xaxis.set_major_formatter(FuncFormatter(_formatter(curves.FORMS[x_axis or "time"])))
    if x_axis in ("time", None):
        low, high = axes.dataLim.intervalx if axes.has_data() else (0.0, 0.0)
        axes.set_xticks(round_times(min(0.0, low), high))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6))
    _frame(axes, title, label, _LABELS[x_axis] if x_axis else "before the last frame")


def _frame(axes: Axes, title: str, label: str, below: str) -> None:
    """Label a panel whose y begins at 0."""
    label_axes(axes, title, label, below)
    axes.set_ylim(0, 1.05 * max(axes.dataLim.y1, 1e-9) if axes.has_data() else 1)
    axes.grid(color=GRID, linewidth=0.6)


def _formatter(form: Callable[[float], str]) -> Callable[[float, object], str]:
    return lambda value, _: f"-{form(-value)}" if value < 0 else form(value)
