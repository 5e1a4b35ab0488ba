"""What a live run (live.py) came to: figures, tables and a picture."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from numpy.typing import NDArray

from benchmarks.replay import Score
from edgeflock.results.figures import COLOURS
from edgeflock.shared.data.datasets import Dataset


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of the stream as it was scored, and how far the devices were by then."""

    seconds: float
    version: int
    scores: list[Score]
    """By device."""
    updates: list[int]
    trained: list[int]
    """Samples that the server's updates are from."""


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """A device at the end. Samples but for `rate` and `updates`."""

    name: str
    rate: float
    """Samples a second, as published."""
    published: int
    trained: int
    dropped: int
    """Older than a second when their turn came."""
    waiting: int
    quarantined: int
    updates: int

    @property
    def batch(self) -> float:
        return self.trained / max(1, self.updates)

    @property
    def lost(self) -> int:
        """What became of no sample."""
        return self.published - self.trained - self.dropped - self.waiting - self.quarantined


@dataclass(frozen=True, slots=True)
class Report:
    data: str
    seconds: float
    turns: list[Turn]
    devices: list[DeviceReport]
    whole_no_change: float
    """Of the stream in one piece."""
    majority: float
    """Of always the commoner class."""

    @classmethod
    def of(
        cls, name: str, data: Dataset, seconds: float, turns: list[Turn], devices: list[DeviceReport]
    ) -> "Report":
        common = float(np.bincount(data.y).max() / len(data))
        return cls(name, seconds, turns, devices, float((data.y[1:] == data.y[:-1]).mean()), common)

    def accuracy(self, start: float = 0.0, end: float = 1.0, device: int | None = None) -> float:
        """Prequential, of the turns from the fraction `start` to `end`, of one device or all."""
        samples, right, _ = self._counts(device)[self._slice(start, end)].sum(0)
        return float(right / samples)

    def no_change(self, start: float = 0.0, end: float = 1.0, device: int | None = None) -> float:
        """What repeating the label before comes to, of each device's own stream."""
        samples, _, unchanged = self._counts(device)[self._slice(start, end)].sum(0)
        return float(unchanged / samples)

    def over_time(self, together: int) -> NDArray[np.float64]:
        """[turns, 3]: the second, accuracy and no change of the `together` turns up to each."""
        counts = np.cumsum(self._counts(None), axis=0)
        counts[together:] -= counts[:-together].copy()
        seconds = [turn.seconds for turn in self.turns]
        return np.column_stack((seconds, counts[:, 1] / counts[:, 0], counts[:, 2] / counts[:, 0]))

    def batches(self, parts: int) -> list[tuple[float, list[float]]]:
        """(until second, mean batch of each device, NaN without any) of equal parts of the run."""
        ends = [round(part / parts * len(self.turns)) for part in range(parts + 1)]
        marks = np.minimum(ends, len(self.turns) - 1)
        updates = np.array([turn.updates for turn in self.turns])[marks]
        trained = np.array([turn.trained for turn in self.turns])[marks]
        made = np.diff(updates, axis=0)
        sizes = np.where(made, np.diff(trained, axis=0), np.nan) / np.maximum(made, 1)
        seconds = [self.seconds * end / len(self.turns) for end in ends[1:]]
        return list(zip(seconds, sizes.tolist(), strict=True))

    def as_json(self) -> dict[str, Any]:
        halves = {"whole": (0.0, 1.0), "first_half": (0.0, 0.5), "second_half": (0.5, 1.0)}
        return {
            "data": self.data,
            "seconds": self.seconds,
            "accuracy": {name: round(self.accuracy(*part), 4) for name, part in halves.items()},
            "no_change": {name: round(self.no_change(*part), 4) for name, part in halves.items()},
            "no_change_of_the_whole_stream": round(self.whole_no_change, 4),
            "majority": round(self.majority, 4),
            "devices": [
                {
                    **asdict(device),
                    "lost": device.lost,
                    "batch": round(device.batch, 1),
                    "accuracy": round(self.accuracy(device=number), 4),
                    "no_change": round(self.no_change(device=number), 4),
                }
                for number, device in enumerate(self.devices)
            ],
            "turns": [asdict(turn) for turn in self.turns],
        }

    def _counts(self, device: int | None) -> NDArray[np.int64]:
        """[turns, 3]: samples, right, unchanged."""
        counts = np.array(
            [[(score.samples, score.right, score.unchanged) for score in turn.scores] for turn in self.turns]
        )
        return counts.sum(1) if device is None else counts[:, device]

    def part(self, start: float, end: float) -> list[Turn]:
        """The turns from the fraction `start` to `end`."""
        return self.turns[self._slice(start, end)]

    def _slice(self, start: float, end: float) -> slice:
        return slice(round(start * len(self.turns)), round(end * len(self.turns)))


PARTS = 10
"""Rows of the table over time."""


def tables(report: Report) -> str:
    """As Markdown: over time, by device, and in one line."""
    lines = [
        "| until | model version | prequential accuracy | no change | batches |",
        "|--:|--:|--:|--:|--:|",
    ]
    for part, (seconds, sizes) in enumerate(report.batches(PARTS)):
        last = report.turns[round((part + 1) / PARTS * len(report.turns)) - 1]
        span = part / PARTS, (part + 1) / PARTS
        lines.append(
            f"| {seconds:.0f} s | {last.version:,} | {report.accuracy(*span):.1%} "
            f"| {report.no_change(*span):.1%} | {', '.join(f'{size:.0f}' for size in sizes)} |"
        )
    lines += [
        "",
        "| device | per s | published | trained | dropped | left | updates | batch | accuracy | no change |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for number, device in enumerate(report.devices):
        lines.append(
            f"| {device.name} | {device.rate:g} | {device.published:,} | {device.trained:,} "
            f"| {device.dropped:,} | {device.waiting:,} | {device.updates:,} | {device.batch:.1f} "
            f"| {report.accuracy(device=number):.2%} | {report.no_change(device=number):.2%} |"
        )
    lines += [
        "",
        f"{report.data}: accuracy {report.accuracy():.2%}, second half {report.accuracy(0.5):.2%}; "
        f"no change {report.no_change():.2%}, second half {report.no_change(0.5):.2%}, of the stream in one "
        f"piece {report.whole_no_change:.2%}; the commoner class {report.majority:.2%}",
    ]
    return "\n".join(lines)


TOGETHER = 10
"""Turns that a point of the accuracy's curve is of."""


def draw(report: Report, path: Path, caption: str) -> None:
    """Accuracy and batch sizes over time, as `path`.png and .svg."""
    matplotlib.use("agg")
    # The text of an SVG stays text, and two runs of equal figures give equal files.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "edgeflock", "font.size": 9})
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.0, 4.3))
    seconds, accuracy, unchanged = report.over_time(TOGETHER).T
    left.plot(seconds, 100 * accuracy, color=COLOURS[0], linewidth=1.6, label="model, on samples new to it")
    left.plot(seconds, 100 * unchanged, "--", color=COLOURS[1], linewidth=1.6, label="no change")
    left.set_ylim(50, 100)
    together = sum(score.samples for turn in report.turns[:TOGETHER] for score in turn.scores)
    _dress(left, f"{report.data}: the last {together:,} samples", "accuracy (%)")
    batches = report.batches(2 * PARTS)
    times, sizes = [at for at, _ in batches], np.array([row for _, row in batches])
    for number, device in enumerate(report.devices):
        label = f"{device.name}, {device.rate:.0f}/s"
        style: Sequence[str] = ("-", "--", ":")
        right.plot(
            times, sizes[:, number], style[number % 3], color=COLOURS[number], linewidth=1.6, label=label
        )
    right.set_ylim(bottom=0)
    _dress(right, "Batches follow the rate", "samples of an update, mean")
    figure.text(0.01, 0.012, caption, color="#555555", fontsize=7)
    figure.tight_layout(rect=(0, 0.04, 1, 1), w_pad=2)
    figure.savefig(path.with_suffix(".png"), dpi=150)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    pyplot.close(figure)


def _dress(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.set_xlabel("seconds")
    axes.set_ylabel(label)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)
