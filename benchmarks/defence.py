"""What bad updates cost, and what a defence against them costs: accuracy of emulated fleets.

    python -m benchmarks.defence [--sets mnist words] [--devices N ...] [--seeds N] [--only TEXT ...]
        [--sgd] [--rounds] [--finished] [--output FILE]

Of each fleet a tenth or three tenths of the devices are bad, as attacks.py says. All devices are real Workers
and the server's engine is at work; only where a bad one's gradients come from differs. Each with each
defence, and honest fleets too: of samples dealt at random, and of one label a device. The default
coordination is asynchronous with AdaComp's weights, Adafactor on devices (SGD with --sgd), sparse signs up,
lossy down. mean and median are rounds of SGD, without a defence, of a tenth of each gradient.

The defence was chosen on `mnist` with 50 devices; `words` had no part in it. All are evaluated on the samples
that `score` leaves to evaluate on. A row is a line of JSON in --output. What is there is not run again: stop
it when you like, and go on later. Prints a table of what there is, and says what is not. The published rows
are in docs/results/defence.jsonl.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.attacks import ATTACKS, Bad, Clock, StretchedAdafactor, triggered
from benchmarks.words import words_npz
from edgeflock.client.backends import Backend
from edgeflock.client.training import trainer
from edgeflock.devices.emulation.config import FleetFile
from edgeflock.devices.emulation.fleet import FleetObjects, PreparedFleet, prepare, run_fleet
from edgeflock.papers.machine import commit, machine
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.hosting.trusting import split_trusted
from edgeflock.server.monitoring.listeners import Applied, Callbacks
from edgeflock.shared.data import datasets
from edgeflock.shared.model.fields import rows as of_rows
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol.frames import Evaluation

DEFENCES = ("none", "clip", "score")
ROUNDS = ("mean", "median")
CASES = (
    ("", 0.0, 0),
    ("", 0.0, 1),
    *((attack, part, 0) for part in (0.1, 0.3) for attack in ATTACKS),
)
"""(attack, part of the devices, labels a device); of no attack nobody is bad, of no labels all have all."""


@dataclass(frozen=True, slots=True)
class Data:
    """A data set and how it is trained on."""

    uri: str
    """Of "mnist" and "words" it is made when asked for: of fewer samples."""
    module: str
    devices: int
    updates: int
    rate: float
    """Of SGD. In rounds ten times as much: a mean is of all devices' updates."""
    labels: int = 10


_TRAIN, _TEST = 12_000, 3_000

_FOLDER = os.environ.get("EDGEFLOCK_DATA", ".")

SETS = {
    "digits": Data("digits:", "edgeflock.client.zoo:DigitsCNN", 20, 1_200, 0.1),
    "mnist": Data("", "edgeflock.client.zoo:PaperMLP", 50, 2_000, 0.1),
    "fsdd": Data(f"npz:{_FOLDER}/fsdd_logmel.npz", "edgeflock.client.zoo:SpeechCNN", 20, 6_000, 0.05),
    "words": Data("", "benchmarks.words:WordMLP", 50, 2_000, 0.4, labels=17),
    "mnist-cnn": Data(f"npz:{_FOLDER}/mnist.npz", "edgeflock.client.zoo:PaperCNN", 50, 6_000, 0.05),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    data: str
    defence: str
    """Of DEFENCES, or what rounds of ROUNDS go by."""
    attack: str
    """"" : nobody is bad."""
    part: float
    labels: int
    """A device; 0: dealt at random."""
    seed: int
    devices: int

    @property
    def name(self) -> str:
        kind = f"{self.attack}{self.part:.0%}" if self.attack else "honest"
        label = "-one-label" * bool(self.labels)
        return f"{self.data}-n{self.devices}-{kind}{label}-{self.defence}-{self.seed}"


def rows(
    sets: list[str], devices: list[int], seeds: int, defences: tuple[str, ...] = DEFENCES
) -> Iterator[Row]:
    """Those that say most first."""
    for seed in range(seeds):
        for data in sets:
            for count in devices or [SETS[data].devices]:
                for attack, part, labels in CASES:
                    yield from (Row(data, one, attack, part, labels, seed, count) for one in defences)


def run(row: Row, overrides: list[str], sgd: bool) -> dict[str, Any]:
    """Its figures: the mean accuracy of the last five of twenty evaluations, and what the guard did."""
    data = SETS[row.data]
    prepared = _prepared(row, tuple(overrides), sgd)
    bad, clock = _bad_ones(row), Clock(data.updates)
    adafactor = prepared.file.local.optimizer == "adafactor"
    backends: list[Bad] = []
    seen: list[Evaluation] = []
    shares: dict[str, list[float]] = {"honest": [], "bad": []}

    def made(update: Applied) -> None:
        clock.made += 1
        shares["bad" if int(update.device.split("-")[1]) in bad else "honest"].append(update.share)

    def backend_of(number: int, backend: Backend) -> Backend:
        if number not in bad:
            return backend
        place = sorted(bad).index(number) / len(bad)
        seed = [row.seed, 5, number]
        backends.append(Bad(backend, row.attack, clock, place, data.labels, adafactor, seed))
        return backends[-1]

    began = time.process_time()
    with patch.object(trainer, "Adafactor", StretchedAdafactor):
        result = run_fleet(prepared, row.seed, Callbacks(made, seen.append), backend_of=backend_of)
    accuracies = [one.accuracy or 0.0 for one in seen]
    # A run that left the finite numbers ends there, and is as good as guessing.
    accuracy = 0.1 if result.ended == "diverged" else fmean(accuracies[-5:])
    return {
        **asdict(row),
        "overrides": overrides,
        "sgd": sgd,
        "accuracy": accuracy,
        "accuracies": accuracies,
        "trigger": _trigger(prepared, backends, row.seed) if row.attack == "backdoor" else None,
        "guard": {who: _decided(those) for who, those in shares.items() if those},
        "ended": result.ended,
        "updates": result.updates,
        "cpu_s": round(time.process_time() - began, 1),
    }


def _trigger(prepared: PreparedFleet, backends: list[Bad], seed: int) -> float:
    """Return the part of the samples of other labels that the trigger turns into 0.

    It is measured with the model that a bad device pulled last.
    """
    model, test = prepared.file.model, prepared.test
    flat = FlatModule(model.module, model.loss, seed, prepared.make)
    others = np.flatnonzero(test.y != 0)
    theta = backends[-1].theta
    assert theta is not None
    marked = triggered(np.asarray(of_rows(test.x, others)))
    _, rate = flat.evaluate(theta, marked, np.zeros_like(test.y[others]))
    return rate or 0.0


def _decided(shares: list[float]) -> dict[str, float]:
    """The parts of the updates that were clipped and dropped."""
    dropped, clipped = shares.count(0.0), sum(0 < share < 1 for share in shares)
    return {"clipped": round(clipped / len(shares), 4), "dropped": round(dropped / len(shares), 4)}


def _bad_ones(row: Row) -> set[int]:
    count = round(row.part * row.devices)
    chosen = np.random.default_rng([row.seed, 6]).permutation(row.devices)[:count]
    return {int(one) for one in chosen}


def _prepared(row: Row, overrides: tuple[str, ...], sgd: bool) -> PreparedFleet:
    data = SETS[row.data]
    sections: dict[str, dict[str, object]] = {
        "end": {"updates": data.updates},
        "journal": {"keep_updates": False},
        "model": {"module": data.module, "data": data.uri},
        "coordination": {"window": 4096} | ({"learning_rate": data.rate} if sgd else {}),
        "defence": {"mode": "none" if row.defence in ROUNDS else row.defence},
        "fleet": {
            "devices": row.devices,
            "data": data.uri,
            "labels": row.labels,
            "evaluate_every": data.updates // 20,
        },
        "devices": {"all": {"step_ms": 1000, "timing": "exponential"}},
    }
    if row.defence in ROUNDS:
        rounds = {"mode": "rounds", "aggregate": row.defence, "learning_rate": 10 * data.rate}
        sections["coordination"] |= rounds
        sections["compression"] = {"select": 0.1, "feedback": 0.0}
    for override in overrides:
        path, _, value = override.partition("=")
        section, _, key = path.partition(".")
        sections.setdefault(section, {})[key] = json.loads(value)
    file = FleetFile.model_validate(sections, context=CHOICES)
    test = _test(data.uri)
    return prepare(file, FleetObjects(test=test if row.defence == "score" else split_trusted(test)[1]))


@cache
def _test(uri: str) -> datasets.Dataset:
    return datasets.load(uri, "test")


def table(found: list[dict[str, Any]], wanted: list[Row], base: str) -> str:
    """Return a table of accuracies in percent, as means over seeds.

    It has the mean of the last five evaluations, its difference to the honest fleet with the defence `base`
    seed by seed, the last evaluation, and the best one.
    """
    lines: list[str] = []
    numbers = "mean of five | points | last | best | dropped, honest | bad | trigger | seeds"
    for data, devices in dict.fromkeys((row.data, row.devices) for row in wanted):
        here = [one for one in found if (one["data"], one["devices"]) == (data, devices)]
        if not here:
            continue
        heading = f"## {data}, {devices} devices"
        lines += [heading, "", f"| bad devices | defence | {numbers} |", "|---|---|" + "--:|" * 8]
        for attack, part, labels in CASES:
            case = {"attack": attack, "part": part, "labels": labels}
            honest = _of(here, {"attack": "", "labels": labels, "defence": base})
            text = f"{attack}, {part:.0%}" if attack else "honest" + ", one label each" * bool(labels)
            for defence in dict.fromkeys(row.defence for row in wanted):
                if runs := _of(here, {**case, "defence": defence}):
                    lines.append(f"| {text} | {defence} | {_cells(runs, honest)} |")
        lines.append("")
    return "\n".join(lines)


def _of(found: list[dict[str, Any]], case: dict[str, object]) -> dict[int, dict[str, Any]]:
    """Seed -> figures of a case."""
    return {one["seed"]: one for one in found if all(one[key] == value for key, value in case.items())}


def _cells(runs: dict[int, dict[str, Any]], honest: dict[int, dict[str, Any]]) -> str:
    def mean(values: list[float], sign: str = "") -> str:
        return f"{100 * fmean(values):{sign}.2f}" if values else ""

    gained = [runs[seed]["accuracy"] - honest[seed]["accuracy"] for seed in runs if seed in honest]
    each = list(runs.values())
    dropped = [
        [one["guard"][who]["dropped"] for one in each if who in one["guard"]] for who in ("honest", "bad")
    ]
    cells = [
        mean([one["accuracy"] for one in each]),
        mean(gained, "+"),
        mean([one["accuracies"][-1] for one in each]),
        mean([max(one["accuracies"]) for one in each]),
        *map(mean, dropped),
        mean([one["trigger"] for one in each if one["trigger"] is not None]),
        str(len(runs)),
    ]
    return " | ".join(cells)


def smaller(name: str, folder: Path) -> Path:
    """The first samples of a set, as an archive: a run of 2,000 updates sees no more of them."""
    archive, whole = folder / f"{name}-{_TRAIN}.npz", Path(_FOLDER) / "mnist.npz"
    if archive.exists():
        return archive
    if name == "words":
        words_npz(Path(_FOLDER) / "pos_ud_ewt.npz", whole := folder / "words.npz")
    with np.load(whole) as arrays:
        first = {key: _TRAIN if key.endswith("train") else _TEST for key in arrays.files}
        np.savez(archive, **{key: arrays[key][:count] for key, count in first.items()})
    return archive


def read(path: Path, overrides: list[str], sgd: bool) -> list[dict[str, Any]]:
    """Return the rows of a file that were run with these settings; none if there is no such file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [one for one in map(json.loads, lines) if (one["overrides"], one["sgd"]) == (overrides, sgd)]


def missing_of(wanted: list[Row], found: list[dict[str, Any]]) -> list[Row]:
    """Return the rows that were not run."""
    names = {Row(**{field.name: one[field.name] for field in fields(Row)}).name for one in found}
    return [row for row in wanted if row.name not in names]


def run_missing(wanted: list[Row], path: Path, overrides: list[str], sgd: bool) -> None:
    """Run what is not in the file yet, and append each row when it has ended."""
    with TemporaryDirectory() as folder:
        for name in {"mnist", "words"} & {row.data for row in wanted}:
            SETS[name] = replace(SETS[name], uri=f"npz:{smaller(name, Path(folder))}")
        for row in missing_of(wanted, read(path, overrides, sgd)):
            figures = run(row, overrides, sgd)
            figures |= {
                "commit": commit(),
                "machine": machine(),
                "date": datetime.now(UTC).date().isoformat(),
            }
            with path.open("a") as file:
                file.write(json.dumps(figures) + "\n")
            print(row.name, figures["accuracy"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.defence", description=__doc__.split("\n")[0])
    parser.add_argument("--sets", nargs="+", default=["mnist", "fsdd"], choices=list(SETS))
    parser.add_argument(
        "--devices", nargs="+", type=int, default=[], help="fleets of so many; else the set's"
    )
    parser.add_argument("--seeds", type=int, default=1, help="0 .. N-1")
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose name has one of these in it")
    parser.add_argument("--sgd", action="store_true", help="devices use SGD, at the set's rate")
    parser.add_argument("--rounds", action="store_true", help=f"rounds by {', '.join(ROUNDS)}")
    parser.add_argument("--set", dest="overrides", nargs="*", default=[], help="section.key=JSON, for all")
    parser.add_argument("--finished", action="store_true", help="run nothing, report what has been run")
    parser.add_argument("--output", type=Path, default=Path("edgeflock-defence.jsonl"), help="keeps the rows")
    asked = parser.parse_args()
    defences = ROUNDS if asked.rounds else DEFENCES
    every = rows(asked.sets, asked.devices, asked.seeds, defences)
    wanted = [row for row in every if any(text in row.name for text in asked.only)]
    if not asked.finished:
        run_missing(wanted, asked.output, asked.overrides, asked.sgd)
    found = read(asked.output, asked.overrides, asked.sgd)
    print(table(found, wanted, defences[0]))
    if missing := missing_of(wanted, found):
        print(f"Not run: {len(missing)} of {len(wanted)}: {', '.join(row.name for row in missing)}")


if __name__ == "__main__":
    main()
