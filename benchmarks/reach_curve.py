"""How far devices reach, directly and through gateways: measured point by point, as table and figure."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks.reach import Reached, reach
from edgeflock.papers.machine import machine

BEARS = 0.9
"""Of what is offered, as receipts; with less than that no more is offered."""

COLOURS = ("#0072B2", "#B84A00", "#007A5A", "#8F4A87")
"""Of Okabe and Ito's palette, darker where it is text: every kind of colour vision tells them apart."""
GREY = "#555555"


def measured(
    gateways: Sequence[int], rates: Sequence[float], period: float, seconds: float, *, tls: bool, pull: bool
) -> Iterator[Reached]:
    """Measure each number of gateways with more and more devices, until they are too many.

    A device pushes every `period` seconds.
    """
    for count in gateways:
        for rate in sorted(rates):
            one = reach(round(rate * period), count, period, seconds, tls=tls, pull=pull)
            print(json.dumps(asdict(one)), file=sys.stderr, flush=True)
            yield one
            if one.receipts_per_second < BEARS * one.offered_per_second:
                break


def of_gateway(one: Reached) -> float | None:
    """Percent of a core that the busiest gateway took; None without any."""
    return max((share for name, share in one.cpu_percent.items() if name != "leader"), default=None)


def record(points: Sequence[Reached], command: str, beside: str) -> dict[str, object]:
    """What is kept of a measurement. `beside`: what else the machine did."""
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "beside": beside,
        "points": [asdict(one) for one in points],
    }


def table(points: Sequence[Reached]) -> str:
    """As Markdown."""
    lines = [
        "| gateways | devices | offered a second | receipts a second | leader | busiest gateway | wait |"
        " refused | leader, gateway: MB |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for one in points:
        share = of_gateway(one)
        memory = [sizes[-1] for sizes in one.rss_mb.values()]
        lines.append(
            f"| {one.gateways} | {one.devices:,} | {one.offered_per_second:,.0f} "
            f"| {one.receipts_per_second:,.0f} | {one.cpu_percent['leader']:.1f}% "
            f"| {'' if share is None else f'{share:.1f}%'} | {_wait(one.wait_p50_seconds)} | {one.refused:,} "
            f"| {', '.join(f'{size:,}' for size in (memory[0], *sorted(memory[1:])[-1:]))} |"
        )
    return "\n".join(lines)


def draw(points: Sequence[Reached], path: Path, caption: str) -> None:
    """Receipts, processor and wait against what is offered, a colour a number of gateways; as PNG and SVG."""
    matplotlib.use("agg")
    # The text of an SVG stays text, and two runs of equal figures give equal files.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gateways", "font.size": 9})
    figure, (receipts, processor, wait) = pyplot.subplots(1, 3, figsize=(10.2, 3.7))
    offered = [one.offered_per_second for one in points]
    ends = (min(offered), max(offered))
    receipts.plot(ends, ends, color="#BBBBBB", linewidth=1, linestyle=":")
    handles = []
    for count, colour in zip(dict.fromkeys(one.gateways for one in points), COLOURS, strict=False):
        these = [one for one in points if one.gateways == count]
        x = [one.offered_per_second for one in these]
        name = f"{count} gateway{'s' * (count > 1)}" if count else "direct"
        handles.append(Line2D([], [], color=colour, marker="o", markersize=5, label=name))
        _plot(receipts, x, [one.receipts_per_second for one in these], colour)
        _plot(processor, x, [one.cpu_percent["leader"] for one in these], colour)
        through = [share for one in these if (share := of_gateway(one)) is not None]
        if through:
            _plot(processor, x, through, colour, dashed=True)
        _plot(wait, x, [1e3 * one.wait_p50_seconds for one in these], colour)
    for axes, title, about in (
        (receipts, "Receipts", "a second"),
        (processor, "Processor", "% of a core; dashed: a gateway"),
        (wait, "Wait for a receipt", "median, ms"),
    ):
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=18)
        axes.text(0, 1.03, about, transform=axes.transAxes, color=GREY, fontsize=8.5)
        axes.set_xlabel("updates a second that are offered")
        axes.set_xscale("log")
        axes.set_yscale("linear" if axes is processor else "log")
        axes.set_xticks(sorted(set(offered)), [f"{one:,.0f}" for one in sorted(set(offered))])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
        axes.tick_params(length=3, color="#999999")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("#999999")
    processor.set_ylim(bottom=0)
    receipts.legend(handles=handles, frameon=False, loc="upper left", fontsize=8.5)
    figure.text(0.01, 0.015, caption, color=GREY, fontsize=7.5)
    figure.tight_layout(rect=(0, 0.05, 1, 1), w_pad=2)
    figure.savefig(path.with_suffix(".png"), dpi=160)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    pyplot.close(figure)


def _plot(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, *, dashed: bool = False) -> None:
    axes.plot(
        x, y, color=colour, marker="s" if dashed else "o", markersize=4.5, linewidth=1.7,
        linestyle="--" if dashed else "-",
    )  # fmt: skip


def _wait(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"
