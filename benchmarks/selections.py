"""Which entries to send: selections on the same fleet, by bytes both ways and virtual time to an accuracy.

    python -m benchmarks.selections [--seeds N] [--updates N] [--processes N] [--finished]

Significance compression, the largest entries, ScaDLES' adaptive choice between these and all, AdaComp's
largest of each tensor without a memory, and what Edgeflock does, as it comes and with
`preset = "low-bandwidth"`. Ten emulated devices of three speeds on handwritten digits (38,282 parameters),
asynchronous, AdaComp's weights, the averaged model and the same lossy downlink for all: only what devices
select differs. Rivals' values are of 4 bits, with which they lose nothing. One seed of each setting and
learning rate tells each selection's best, which then runs with every seed.

Runs are kept in --output: what has ended is not run again, and --finished reports what there is. Leaves
selections.json and selections.md in --report.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.both_ways import Row
from edgeflock.devices.emulation.config import FleetFile
from edgeflock.papers.machine import machine
from edgeflock.results.outcomes import Setting
from edgeflock.results.sweep import outcome, sweep
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.numbers import integer, percent, size
from edgeflock.shared.settings.presets import PRESETS

DEVICES = 10
RATES = (0.1, 0.2)
ACCURACIES = (0.90, 0.95, 0.97)
COSTS = {
    "ingress": "up",
    "egress": "down",
    "traffic": "both ways",
    "seconds": "virtual time",
    "updates": "updates",
}

KINDS: dict[str, dict[str, object]] = {
    "fast": {"share": 2, "step_ms": 100, "uplink_mbps": 2.0, "downlink_mbps": 8.0, "latency_ms": 10},
    "middling": {"share": 2, "step_ms": 300, "uplink_mbps": 0.5, "downlink_mbps": 2.0, "latency_ms": 20},
    "slow": {"share": 1, "step_ms": 1000, "uplink_mbps": 0.1, "downlink_mbps": 0.4, "latency_ms": 100},
}
"""Of devices: four, four and two."""

_FOUR_BITS: dict[str, object] = {"compression.indices": "golomb", "compression.values": "codebook4"}


def selections() -> Iterator[tuple[str, str, dict[str, object]]]:
    """Name, setting, and [section.key] of a fleet file."""
    for threshold in (0.01, 0.1, 1.0):
        yield (
            "significance",
            f"threshold {threshold:g}",
            {
                **_FOUR_BITS,
                "compression.selection": "significance",
                "compression.significance": threshold,
                "compression.feedback": 1.0,
            },
        )
    for share in (0.001, 0.005, 0.02):
        largest = {**_FOUR_BITS, "compression.select": share, "compression.feedback": 1.0}
        yield "top-k", f"c = {share:g}", largest | {"compression.balance": 1.0}
    for share, lost in ((0.01, 0.5), (0.01, 0.7), (0.1, 0.3)):
        adaptive = {**_FOUR_BITS, "compression.select": share, "compression.threshold": lost}
        yield (
            "adaptive (ScaDLES)",
            f"c = {share:g}, delta {lost:g}",
            adaptive | {"compression.balance": 1.0, "compression.feedback": 0.0},
        )
    for share in (0.005, 0.02, 0.1):
        each = {**_FOUR_BITS, "compression.select": share, "compression.feedback": 0.0}
        yield "AdaComp", f"c = {share:g}", each | {"compression.balance": 1.0}
    yield "as it comes", "root of P, signs", {}
    record = {
        key: value for key, value in PRESETS["low-bandwidth"].items() if not key.startswith("downlink.")
    }
    yield "record", "c = 0.0005, signs, two steps", record


def rows(updates: int) -> Iterator[Row]:
    """Every setting at every rate."""
    for (name, setting, settings), rate in product(selections(), RATES):
        sections: dict[str, dict[str, object]] = {
            "end": {"updates": updates},
            "journal": {"keep_updates": False},
            "model": {"module": "edgeflock.client.zoo:DigitsCNN", "data": "digits:"},
            "coordination": {"window": 4096, "learning_rate": rate},
            "fleet": {"devices": DEVICES, "data": "digits:", "evaluate_every": max(1, updates // 30)},
            "devices": dict(KINDS),
        }
        for path, value in settings.items():
            section, _, key = path.partition(".")
            sections.setdefault(section, {})[key] = value
        file = FleetFile.model_validate(sections, context=CHOICES)
        yield Row(name, f"{setting}, rate {rate:g}", file)


def measured(row: Row, seeds: range, out: Path) -> Setting | None:
    """What has ended of it."""
    done = [one for seed in seeds if (one := outcome(row.job(seed, out)))]
    return Setting(row.setting, done) if done else None


def best(several: list[tuple[Row, Setting]]) -> Row:
    """Return the setting with the fewest bytes both ways to the highest accuracy that any reached.

    The first seed decides. If none reached any, it is the one that came farthest.
    """

    def merit(one: Setting) -> tuple[float, float]:
        first = Setting(one.label, one.outcomes[:1])
        for accuracy in reversed(ACCURACIES):
            if reached := first.costs_to_reach(accuracy, "traffic"):
                return accuracy, -reached[0]
        return 0.0, first.outcomes[0].best

    return max(several, key=lambda one: merit(one[1]))[0]


def figures(setting: Setting) -> dict[str, Any]:
    """Means over the seeds; what it took to an accuracy is None unless every run came so far."""
    return {
        "setting": setting.label,
        "seeds": [run.end["seed"] for run in setting.outcomes],
        "accuracy": {"best": setting.best(), "last": setting.last(), "last_five": setting.last_five()},
        "at": {
            f"{accuracy:.2f}": (
                {cost: fmean(setting.costs_to_reach(accuracy, cost) or ()) for cost in COSTS}
                if setting.costs_to_reach(accuracy, "updates")
                else None
            )
            for accuracy in ACCURACIES
        },
    }


def markdown(summary: dict[str, Any]) -> str:
    """selections.md."""
    lines = [
        "# Selections at equal accuracy",
        "",
        f"`{summary['command']}` on {summary['date']}: {summary['machine']}. {DEVICES} emulated devices of "
        "three speeds, digits, 38,282 parameters, batches of 10; asynchronous, AdaComp's weights, the "
        "averaged model and the lossy downlink for all. Up and down are bytes of messages with their frames, "
        "first models included, until the first evaluation with the accuracy; means over the seeds, of the "
        "best setting of a grid, which selections.json has whole. "
        "A dash: at least one seed never came so far.",
    ]
    for accuracy in reversed(ACCURACIES):
        lines += [
            "",
            f"| to {accuracy:.0%} | setting | seeds | {' | '.join(COSTS.values())} | best | last "
            "| last five |",
            "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for name, one in summary["selections"].items():
            at = one["at"][f"{accuracy:.2f}"]
            cells = [_shown(cost, at[cost]) if at else "-" for cost in COSTS]
            ends = [percent(fmean(one["accuracy"][which])) for which in ("best", "last", "last_five")]
            reported = [name, one["setting"], str(len(one["seeds"])), *cells, *ends]
            lines.append(f"| {' | '.join(reported)} |")
    return "\n".join([*lines, ""])


def _shown(cost: str, value: float) -> str:
    return integer(value) if cost == "updates" else f"{value:,.1f} s" if cost == "seconds" else size(value)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.selections", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="0 .. N-1, of each selection's best setting")
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--finished", action="store_true", help="run nothing, report what has been run")
    parser.add_argument("--output", type=Path, default=Path("edgeflock-selections"), help="keeps the runs")
    parser.add_argument("--report", type=Path, default=Path("docs/results"))
    asked = parser.parse_args(arguments)

    def run(several: list[Row], seeds: range) -> None:
        jobs = [row.job(seed, asked.output) for seed in seeds for row in several]
        if not asked.finished:
            sweep([job for job in jobs if outcome(job) is None], asked.processes)

    def ended(several: list[Row], seeds: range) -> list[tuple[Row, Setting]]:
        return [(row, one) for row in several if (one := measured(row, seeds, asked.output))]

    grid = list(rows(asked.updates))
    run(grid, range(1))
    tried = ended(grid, range(1))
    if not tried:
        parser.error(f"--finished: in {asked.output} no run has ended yet")
    chosen = [
        best([one for one in tried if one[0].method == name]) for name in {row.method: 0 for row, _ in tried}
    ]
    run(chosen, range(asked.seeds))
    summary = {
        "command": shlex.join(["python", "-m", "benchmarks.selections", *arguments]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "selections": {row.method: figures(one) for row, one in ended(chosen, range(asked.seeds))},
        "grid": {row.name: figures(one) for row, one in tried},
    }
    asked.report.mkdir(parents=True, exist_ok=True)
    (asked.report / "selections.json").write_text(json.dumps(summary, indent=1) + "\n")
    (asked.report / "selections.md").write_text(markdown(summary))
    print(markdown(summary))


if __name__ == "__main__":
    main(sys.argv[1:])
