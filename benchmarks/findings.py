"""Whether the server names the device that is wrong, and nobody else.

    python -m benchmarks.findings [--seeds 10] [--first 0] [--out FILE]

Emulated fleets of seven Raspberry Pi 4 train the digits as a quickstart does, for up to two minutes of
virtual time or 2,500 updates, or until the wrong one is named. In each of some ways one device is wrong, or
none, and which devices are named is counted over the seeds; seeds also say who is wrong. docs/findings.md has
the results.
"""

import argparse
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from edgeflock.devices.emulation import config
from edgeflock.devices.emulation.fleet import Prepared, prepare, run_fleet
from edgeflock.server.operations.listeners import Listening
from edgeflock.shared.data.datasets import Dataset, joined
from edgeflock.shared.protocol.frames import Finding

DEVICES, UPDATES, SECONDS = 7, 2500, 120


class Named(Exception):
    """Somebody has the answer."""


Wrong = Callable[[Dataset, np.random.Generator], Dataset]


def _labelled(of: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Wrong:
    return lambda data, random: Dataset(data.x, of(data.y, random), described=data.described)


def _of_one_label(data: Dataset, random: np.random.Generator) -> Dataset:
    where = np.flatnonzero(data.y == random.integers(10))
    return Dataset(data.x[where], data.y[where], described=data.described)


WAYS: dict[str, tuple[int, Wrong | None, bool]] = {
    "honest, all labels each": (0, None, False),
    "honest, one label each": (1, None, False),
    "honest, two labels each": (2, None, False),
    "honest, one of seven has one label": (0, _of_one_label, False),
    "labels shifted by one": (0, _labelled(lambda y, random: (y + 1) % 10), True),
    "labels mirrored": (0, _labelled(lambda y, random: 9 - y), True),
    "labels drawn at random": (0, _labelled(lambda y, random: random.permutation(y)), True),
    "two labels each, one shifts them": (2, _labelled(lambda y, random: (y + 1) % 10), True),
    "one label each, one shifts it": (1, _labelled(lambda y, random: (y + 1) % 10), True),
    "inputs times 1,000": (0, lambda data, _: Dataset(data.x * 1e3, data.y, described=data.described), True),
}
"""What happens -> (labels a device has, 0: all; what one device makes of its data, whether that is wrong)."""


def file_of(labels: int) -> config.FleetFile:
    return config.parse(
        "",
        "benchmarks.findings",
        given={
            "run": {"updates": UPDATES},
            "model": {"module": "edgeflock.client.zoo:DigitsCNN", "data": "digits:"},
            "fleet": {
                "devices": DEVICES,
                "data": "digits:",
                "labels": labels,
                "seconds": SECONDS,
                "evaluate_every": UPDATES,
            },
            "devices": {"pi": {"profile": "raspberry-pi-4"}},
        },
    )


def run(prepared: Prepared, wrong: Wrong | None, seed: int) -> tuple[str, list[Finding]]:
    """(the device that is wrong, what was found)."""
    random = np.random.default_rng([seed, 99])
    chosen = int(random.integers(DEVICES))
    if wrong is not None:
        shares = list(prepared.shares)
        # Who has one label only has it of everybody's: enough for batches of it.
        data = joined(prepared.shares) if wrong is _of_one_label else shares[chosen]
        shares[chosen] = wrong(data, random)
        prepared = replace(prepared, shares=shares)
    found: list[Finding] = []

    def look(finding: Finding) -> None:
        found.append(finding)
        if finding.device == f"pi-{chosen}":
            raise Named

    with TemporaryDirectory() as folder, suppress(Named):
        run_fleet(prepared, seed, Path(folder) / "run", Listening(on_finding=look))
    return f"pi-{chosen}", found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="ways that hold this word")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    results = []
    for way, (labels, wrong, is_wrong) in WAYS.items():
        if asked.only not in way:
            continue
        prepared, began = prepare(file_of(labels)), time.process_time()
        named, others, none, when = 0, 0, 0, []
        for seed in range(asked.first, asked.first + asked.seeds):
            device, found = run(prepared, wrong, seed)
            first = {one.device: one.since for one in reversed(found)}
            named += is_wrong and device in first
            others += bool(first.keys() - ({device} if is_wrong else set()))
            none += not first
            if is_wrong and device in first:
                when.append(first[device])
        results.append(
            {
                "way": way,
                "seeds": asked.seeds,
                "the right one": named if is_wrong else None,
                "another": others,
                "nobody": none,
                "median s": round(float(np.median(when)), 1) if when else None,
                "last s": round(max(when), 1) if when else None,
                "cpu s a seed": round((time.process_time() - began) / asked.seeds, 1),
            }
        )
        print(json.dumps(results[-1]), flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
