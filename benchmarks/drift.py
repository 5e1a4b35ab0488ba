"""A live stream that changes half-way: who adapts, and how fast?

    python -m benchmarks.drift run [--arm async --rate 0.2 --drift labels --seed 0] [--seconds 240]
    python -m benchmarks.drift report

The electricity stream of live.py: a Mosquitto broker, a server and client processes on real sockets.
Accuracy is prequential: each sample is scored before any device has seen it. Compared are

- async: three devices, one model, AdaComp's staleness, updates weighted by the samples of a batch;
- rounds: the same devices, one model, and each step waits for all three;
- local: each device has a model of its own;
- central: one device has the whole stream.

Drift of labels: the two classes change places half-way. Drift of sensors: the columns do.
"""

import argparse
import asyncio
import json
import os
import shlex
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.live import RECORDINGS, SETTINGS, SHARES, run
from benchmarks.live_report import Report
from benchmarks.replay import turns
from edgeflock.papers.machine import commit, machine
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import EdgeflockError

ELEC = RECORDINGS[0]
ARMS = ("async", "rounds", "local", "central")
DRIFTS = ("none", "labels", "sensors")
PARTS = {"whole": (0.0, 1.0), "before": (0.25, 0.5), "just after": (0.5, 0.6), "later": (0.75, 1.0)}
"""Parts of the stream whose accuracy is reported; what changes, changes at 0.5."""


def drifted(data: Dataset, drift: str) -> Dataset:
    """The stream with a change half-way. `x` is [samples, columns], `y` [samples] of two classes."""
    half = len(data) // 2
    x, y = data.x.copy(), data.y.copy()
    if drift == "labels":
        y[half:] = 1 - y[half:]
    elif drift == "sensors":
        x[half:] = x[half:, ::-1]
    return Dataset(x, y)


async def played(
    arm: str, rate: float, drift: str, seed: int, seconds: float, directory: Path
) -> list[Report]:
    """The reports of the arm's servers: one, or one a device."""
    data = drifted(ELEC.read(Path(os.environ.get("EDGEFLOCK_DATA", ".")) / "elec.npz"), drift)
    settings = [*SETTINGS, f"coordination.learning_rate={rate}"]
    if arm == "rounds":
        settings.append("coordination.mode=rounds")
    shares = (sum(SHARES),) if arm == "central" else SHARES
    rounds = list(turns(ELEC, data, shares))
    parts = (
        [[[blocks[device]] for blocks in rounds] for device in range(len(shares))]
        if arm == "local"
        else [rounds]
    )
    folders = [directory / str(number) for number in range(len(parts))]
    for folder in folders:
        folder.mkdir()
    return await asyncio.gather(
        *(
            run(ELEC, data, seconds, seed, folder, part, settings)
            for part, folder in zip(parts, folders, strict=True)
        )
    )


def measured(reports: Iterable[Report]) -> dict[str, Any]:
    """Accuracy of each part of the stream over all devices, what became of the samples, and the updates."""
    reports = list(reports)
    devices = [device for report in reports for device in report.devices]
    found: dict[str, Any] = {
        kind: {
            name: round(
                sum(right(report, *part) for report in reports)
                / sum(samples(report, *part) for report in reports),
                4,
            )
            for name, part in PARTS.items()
        }
        for kind, right in (("accuracy", _right), ("no_change", _unchanged))
    }
    for name in ("published", "trained", "dropped", "waiting", "updates", "lost"):
        found[name] = sum(getattr(device, name) for device in devices)
    return found


def samples(report: Report, start: float, end: float) -> int:
    """How many samples a part of the stream has."""
    return sum(score.samples for turn in report.part(start, end) for score in turn.scores)


def _right(report: Report, start: float, end: float) -> int:
    return sum(score.right for turn in report.part(start, end) for score in turn.scores)


def _unchanged(report: Report, start: float, end: float) -> int:
    return sum(score.unchanged for turn in report.part(start, end) for score in turn.scores)


def table(records: list[dict[str, Any]]) -> str:
    """Markdown: a row for each drift, arm and rate, the mean and the range over seeds."""
    rows = defaultdict(list)
    for record in records:
        rows[record["drift"], record["arm"], record["rate"]].append(record)
    lines = [
        f"| drift | arm | rate | seeds | {' | '.join(PARTS)} | updates | dropped |",
        f"|---|---|--:|--:|{'--:|' * (len(PARTS) + 2)}",
    ]
    for (drift, arm, rate), found in sorted(rows.items()):
        cells = [_range([record["accuracy"][part] for record in found]) for part in PARTS]
        updates, dropped = (
            sum(record[key] for record in found) / len(found) for key in ("updates", "dropped")
        )
        lines.append(
            f"| {drift} | {arm} | {rate:g} | {len(found)} | {' | '.join(cells)} | {updates:,.0f} "
            f"| {dropped:,.0f} |"
        )
    for drift in sorted({record["drift"] for record in records}):
        found = [record for record in records if record["drift"] == drift and record["arm"] != "central"]
        if found:
            cells = [_range([record["no_change"][part] for record in found]) for part in PARTS]
            lines.append(f"| {drift} | no change | | | {' | '.join(cells)} | | |")
    return "\n".join(lines)


def _range(values: list[float]) -> str:
    mean = f"{sum(values) / len(values):.1%}"
    return mean if max(values) - min(values) < 0.0005 else f"{mean} ({min(values):.1%} to {max(values):.1%})"


def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser("python -m benchmarks.drift", description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=("run", "report"))
    parser.add_argument("--arm", choices=ARMS, default="async")
    parser.add_argument("--rate", type=float, default=0.2, help="learning rate")
    parser.add_argument("--drift", choices=DRIFTS, default="labels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=240, help="for the whole stream")
    parser.add_argument("--results", type=Path, default=Path("docs/results/live-drift.jsonl"))
    asked = parser.parse_args(arguments)
    if asked.kind == "report":
        print(table([json.loads(line) for line in asked.results.read_text().splitlines()]))
        return
    try:
        with tempfile.TemporaryDirectory() as directory:
            reports = asyncio.run(
                played(asked.arm, asked.rate, asked.drift, asked.seed, asked.seconds, Path(directory))
            )
    except EdgeflockError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    record = {
        **{key: getattr(asked, key) for key in ("arm", "rate", "drift", "seed", "seconds")},
        **measured(reports),
        "command": shlex.join(["python", "-m", "benchmarks.drift", *arguments]),
        "commit": commit(),
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    with asked.results.open("a") as file:
        file.write(json.dumps(record) + "\n")
    print(table([record]))


if __name__ == "__main__":
    main(sys.argv[1:])
