"""How an update's cost grows: with the model, with the fraction that is sent, with the number of devices.

Measured are the updates per second that the server acknowledges and the CPU time (user and system, all
threads) that it spends on one, journal included. Devices push 4-bit values over loopback in a closed loop, so
that they compete with the server for this machine's cores. All points are measured in turn, round by round;
the figure shows medians. The runs of the fleet's curve have a staleness window of 1,024 versions: 200 devices
that push without pulling may be 400 versions behind, more than the default window of 256 admits.
"""

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks import load
from benchmarks.updates import random_update
from edgeflock.papers.machine import machine
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire

LAG = 32
"""Versions between an update's base and the newest that its device knows; others push meanwhile."""

DIFFERENT_UPDATES = 8
"""How many ready-made updates the devices of one load share."""


@dataclass(frozen=True, slots=True)
class Load:
    """What pushes to what."""

    parameters: int
    fraction: float
    devices: int
    window: int = 256


@dataclass(frozen=True, slots=True)
class Point:
    """A load and what it cost: medians over the rounds, and each round's figures."""

    load: Load
    update_bytes: int
    updates_per_second: float
    cpu_microseconds: float
    updates_per_second_rounds: list[float]
    cpu_microseconds_rounds: list[float]


@dataclass(frozen=True, slots=True)
class Curve:
    """Loads that differ in one field, `title`, whose values are `x`."""

    title: str
    fixed: str
    label: str
    x: tuple[float, ...]
    ticks: tuple[str, ...]
    loads: tuple[Load, ...]


def layout_of(size: int) -> Layout:
    """A two-layer network of about `size` parameters."""
    width = (size - 10) // 75
    return Layout.from_shapes(
        [
            ("hidden.weight", (width, 64)),
            ("hidden.bias", (width,)),
            ("output.weight", (10, width)),
            ("output.bias", (10,)),
        ]
    )


LAYOUTS = {layout.size: layout for layout in (layout_of(10_000), load.PAPER_CNN, layout_of(10_000_000))}
SMALL, PAPER, LARGE = LAYOUTS

CURVES = (
    Curve(
        "Model size",
        "c = .01, 16 devices",
        "parameters P",
        (SMALL, PAPER, LARGE),
        ("10,000", "212,000", "10 million"),
        (Load(SMALL, 0.01, 16), Load(PAPER, 0.01, 16), Load(LARGE, 0.01, 16)),
    ),
    Curve(
        "Compression",
        "P = 211,690, 16 devices",
        "fraction c of the gradient sent",
        (0.001, 0.01, 0.1),
        (".001", ".01", ".1"),
        (Load(PAPER, 0.001, 16), Load(PAPER, 0.01, 16), Load(PAPER, 0.1, 16)),
    ),
    Curve(
        "Fleet",
        "P = 211,690, c = .01",
        "connected devices",
        (1, 16, 200),
        ("1", "16", "200"),
        (Load(PAPER, 0.01, 1, 1024), Load(PAPER, 0.01, 16, 1024), Load(PAPER, 0.01, 200, 1024)),
    ),
)


async def measure(rounds: int, seconds: float) -> dict[Load, Point]:
    """Every load of every curve, `rounds` times for `seconds` each, interleaved."""
    loads = list(dict.fromkeys(each for curve in CURVES for each in curve.loads))
    random = np.random.default_rng(0)
    updates = {
        each: [
            random_update(LAYOUTS[each.parameters], each.fraction, "codebook4", random)
            for _ in range(min(DIFFERENT_UPDATES, each.devices))
        ]
        for each in loads
    }
    measured: dict[Load, list[load.Measured]] = {each: [] for each in loads}
    with ExitStack() as stack:
        servers = {
            (size, window): stack.enter_context(load.edgeflock(LAYOUTS[size], window))
            for size, window in sorted({(each.parameters, each.window) for each in loads})
        }

        async def push(each: Load, seconds: float) -> load.Measured:
            server = servers[each.parameters, each.window]
            return await load.measure(server, updates[each], each.devices, seconds, lag=LAG)

        for each in loads:  # the first pushes to a server touch fresh memory and are not counted
            await push(each, min(seconds, 0.5))
        for number in range(1, rounds + 1):
            for each in loads:
                result = await push(each, seconds)
                measured[each].append(result)
                print(f"round {number}, {each}: {result}", file=sys.stderr)
    return {each: _point(each, len(wire.encode(updates[each][0])), measured[each]) for each in loads}


def _point(each: Load, update_bytes: int, measured: list[load.Measured]) -> Point:
    speeds = [round(one.per_second, 1) for one in measured]
    costs = [round(one.cpu_microseconds, 1) for one in measured]
    return Point(each, update_bytes, statistics.median(speeds), statistics.median(costs), speeds, costs)


def draw(points: dict[Load, Point], path: Path, caption: str) -> None:
    """One column a curve: updates per second above, server CPU per update below; as PNG and SVG."""
    # The text of an SVG stays text, and two runs of equal figures give equal files.
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 9})
    figure, rows = pyplot.subplots(2, 3, figsize=(9.6, 5.2), sharex="col", sharey="row", squeeze=False)
    for column, curve in enumerate(CURVES):
        speed, cost = rows[0][column], rows[1][column]
        chosen = [points[each] for each in curve.loads]
        _plot(speed, curve, [point.updates_per_second for point in chosen], BLUE, "o", _number)
        _plot(cost, curve, [point.cpu_microseconds for point in chosen], ORANGE, "s", _duration)
        speed.set_title(curve.title, loc="left", fontsize=11, fontweight="bold", pad=20)
        speed.text(0, 1.04, curve.fixed, transform=speed.transAxes, color=GREY, fontsize=8.5)
        cost.set_xlabel(curve.label)
    rows[0][0].set_ylabel("updates per second", color=BLUE, fontweight="bold")
    rows[1][0].set_ylabel("server CPU per update", color=ORANGE, fontweight="bold")
    for row, name in zip(rows, (_number, _duration), strict=True):
        row[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _, name=name: name(value)))
        low, high = row[0].get_ylim()
        row[0].set_ylim(low / 1.6, high * 2)  # room for the labels
    figure.text(0.01, 0.012, caption, color=GREY, fontsize=7.5)
    figure.tight_layout(rect=(0, 0.035, 1, 1), w_pad=2)
    figure.align_ylabels()
    figure.savefig(path.with_suffix(".png"), dpi=160)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    pyplot.close(figure)


BLUE, ORANGE, GREY = "#0072B2", "#B84A00", "#555555"
"""Blue and a darker vermilion of Okabe and Ito's palette: every kind of colour vision tells them apart."""


def _plot(
    axes: Axes, curve: Curve, values: list[float], colour: str, marker: str, name: Callable[[float], str]
) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.plot(curve.x, values, color=colour, marker=marker, markersize=6, linewidth=1.8)
    for i, (x, value) in enumerate(zip(curve.x, values, strict=True)):
        # A label stands on the side where the line does not climb steeply.
        climbs_left, climbs_right = values[max(i - 1, 0)] > 5 * value, values[min(i + 1, 2)] > 5 * value
        side, shift = ("left", -3) if climbs_left else ("right", 3) if climbs_right else ("center", 0)
        label = axes.annotate(
            name(value), (x, value), (shift, 8), textcoords="offset points", ha=side, color=colour
        )
        label.set_path_effects([withStroke(linewidth=3, foreground="white")])
    axes.set_xticks(curve.x, curve.ticks)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.16)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    axes.tick_params(length=3, color="#999999")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _duration(microseconds: float) -> str:
    if microseconds >= 999.5:
        return f"{microseconds / 1000:.3g} ms"
    return f"{microseconds:.0f} µs"


def table(points: dict[Load, Point]) -> str:
    """The figures as Markdown."""
    lines = [
        "| curve | parameters | c | devices | bytes/update | updates/s | server CPU/update |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for curve in CURVES:
        for each in curve.loads:
            point = points[each]
            lines.append(
                f"| {curve.title.lower()} | {each.parameters:,} | {each.fraction:g} | {each.devices} "
                f"| {point.update_bytes:,} | {_number(point.updates_per_second)} "
                f"| {_duration(point.cpu_microseconds)} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/results"), help="folder for the results")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    arguments = parser.parse_args()
    rounds, seconds = (1, 0.4) if arguments.quick else (3, 2.0)
    points = asyncio.run(measure(rounds, seconds))
    date = datetime.now(UTC).date().isoformat()
    arguments.out.mkdir(parents=True, exist_ok=True)
    record = {
        "command": "python -m benchmarks.growth" + "".join(f" {word}" for word in sys.argv[1:]),
        "date": date,
        "machine": machine(),
        "numpy": np.__version__,
        "rounds": rounds,
        "seconds_per_point": seconds,
        "values": "codebook4",
        "lag": LAG,
        "curves": [
            {"curve": curve.title.lower(), "points": [asdict(points[each]) for each in curve.loads]}
            for curve in CURVES
        ],
    }
    (arguments.out / "growth.json").write_text(json.dumps(record, indent=2) + "\n")
    several = f"medians of {rounds} rounds of {seconds:g} s" if rounds > 1 else f"one round of {seconds:g} s"
    caption = f"{several}, {date}; devices and server share one machine: {machine()}"
    draw(points, arguments.out / "growth", caption)
    print(table(points))


if __name__ == "__main__":
    main()
