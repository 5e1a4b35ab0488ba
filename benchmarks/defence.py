"""What bad updates cost, and what a defence against them costs: accuracy of emulated fleets.

    python -m benchmarks.defence [--sets digits mnist] [--seeds N] [--only TEXT ...] [--rounds] [--finished]

Of each fleet a tenth or three tenths of the devices are bad: they send the gradient with its sign flipped, a
hundred times as large, of labels that are one off, or a random one of the same length. All devices are real
Workers and the server's engine is at work; only where a bad one's gradients come from differs. Each with
each defence, and honest fleets too: of samples dealt at random, and of one label a device. The default
coordination is asynchronous with AdaComp's weights, sparse signs up, lossy down. mean, median, trimmed and
krum are rounds, without a defence, of a tenth of each gradient.

The defence was chosen on `digits`, with rows of `mnist` and `fsdd` at hand; `words` had no part in it. All
are evaluated on the samples that `score` leaves to evaluate on. A row is a JSON file in --output, and what is
there is not run again: stop it when you like, and go on later. Prints a table of what there is, and says what
is not.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.words import words_npz
from edgeflock.client.backends import Backend
from edgeflock.devices.emulation.config import FleetFile
from edgeflock.devices.emulation.fleet import Given, Prepared, prepare, run_fleet
from edgeflock.server.choices import CHOICES
from edgeflock.server.operations.listeners import Applied, Listening
from edgeflock.server.trusting import set_apart
from edgeflock.shared.data import datasets
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.protocol.frames import Evaluation

DEFENCES = ("none", "clip", "score")
ROUNDS = ("mean", "median", "trimmed", "krum")
PARTS = (0.1, 0.3)


@dataclass(frozen=True, slots=True)
class Data:
    """A data set and how it is trained on."""

    uri: str
    """Of "words" it is made when asked for, in --output."""
    module: str
    devices: int
    updates: int
    rate: float
    """In rounds ten times as much: a mean is of all devices' updates."""
    labels: int = 10


_FOLDER = os.environ.get("EDGEFLOCK_DATA", ".")

SETS = {
    "digits": Data("digits:", "edgeflock.client.zoo:DigitsCNN", 20, 1_200, 0.1),
    "mnist": Data(f"npz:{_FOLDER}/mnist.npz", "edgeflock.client.zoo:PaperMLP", 50, 4_000, 0.05),
    "fsdd": Data(f"npz:{_FOLDER}/fsdd_logmel.npz", "edgeflock.client.zoo:SpeechCNN", 20, 6_000, 0.05),
    "words": Data("", "benchmarks.words:WordMLP", 34, 6_000, 0.2, labels=17),
    "mnist-cnn": Data(f"npz:{_FOLDER}/mnist.npz", "edgeflock.client.zoo:PaperCNN", 50, 6_000, 0.05),
}


class Bad:
    """A backend whose gradients are of no use, or worse."""

    def __init__(self, backend: Backend, spoil: "Spoil", labels: int, number: int, seed: int) -> None:
        self.name, self.layout = backend.name, backend.layout
        self._backend, self._spoil, self._labels = backend, spoil, labels
        self._random = np.random.default_rng([seed, 5, number])

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        return self._spoil(self._backend, theta, x, y, self._labels, self._random)


Spoil = Callable[
    [Backend, NDArray[np.float32], NDArray[np.float32], NDArray[Any], int, np.random.Generator], Gradient
]
"""Of how many labels there are, too."""


def _flipped(
    backend: Backend, theta: Any, x: Any, y: Any, labels: int, random: np.random.Generator
) -> Gradient:
    found = backend.gradient(theta, x, y)
    return found._replace(gradient=-found.gradient)


def _scaled(
    backend: Backend, theta: Any, x: Any, y: Any, labels: int, random: np.random.Generator
) -> Gradient:
    found = backend.gradient(theta, x, y)
    return found._replace(gradient=np.float32(100) * found.gradient)


def _shifted(
    backend: Backend, theta: Any, x: Any, y: Any, labels: int, random: np.random.Generator
) -> Gradient:
    return backend.gradient(theta, x, (y + 1) % labels)


def _random(
    backend: Backend, theta: Any, x: Any, y: Any, labels: int, random: np.random.Generator
) -> Gradient:
    found = backend.gradient(theta, x, y)
    noise = random.standard_normal(found.gradient.size, np.float32)
    return found._replace(gradient=noise * (np.linalg.norm(found.gradient) / np.linalg.norm(noise)))


ATTACKS: dict[str, Spoil] = {"flip": _flipped, "x100": _scaled, "shift": _shifted, "random": _random}


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

    @property
    def name(self) -> str:
        kind = f"{self.attack}{self.part:.0%}" if self.attack else "honest"
        return f"{self.data}-{kind}{'-one-label' * bool(self.labels)}-{self.defence}-{self.seed}"


def rows(sets: list[str], seeds: int, defences: tuple[str, ...] = DEFENCES) -> Iterator[Row]:
    """Those that say most first."""
    for seed in range(seeds):
        for data in sets:
            for labels in (0, 1):
                yield from (Row(data, defence, "", 0.0, labels, seed) for defence in defences)
            for part in reversed(PARTS):
                for attack in ATTACKS:
                    yield from (Row(data, defence, attack, part, 0, seed) for defence in defences)


def run(row: Row, overrides: list[str]) -> dict[str, Any]:
    """Its figures: the mean accuracy of the last five of twenty evaluations, and what the guard did."""
    data = SETS[row.data]
    prepared = _prepared(row, tuple(overrides))
    bad = _bad_ones(row, data.devices)
    seen: list[Evaluation] = []
    shares: dict[str, list[float]] = {"honest": [], "bad": []}

    def made(update: Applied) -> None:
        shares["bad" if int(update.device.split("-")[1]) in bad else "honest"].append(update.share)

    def backend_of(number: int, backend: Backend) -> Backend:
        return Bad(backend, ATTACKS[row.attack], data.labels, number, row.seed) if number in bad else backend

    began = time.process_time()
    result = run_fleet(prepared, row.seed, Path(), Listening(made, seen.append), backend_of=backend_of)
    accuracies = [one.accuracy or 0.0 for one in seen]
    # A run that left the finite numbers ends there, and is as good as guessing.
    accuracy = 0.1 if result.ended == "diverged" else fmean(accuracies[-5:])
    return {
        **asdict(row),
        "overrides": overrides,
        "accuracy": accuracy,
        "accuracies": accuracies,
        "guard": {who: _decided(those) for who, those in shares.items() if those},
        "ended": result.ended,
        "updates": result.updates,
        "cpu_s": round(time.process_time() - began, 1),
    }


def _decided(shares: list[float]) -> dict[str, float]:
    """The parts of the updates that were clipped and dropped."""
    dropped, clipped = shares.count(0.0), sum(0 < share < 1 for share in shares)
    return {"clipped": round(clipped / len(shares), 4), "dropped": round(dropped / len(shares), 4)}


def _bad_ones(row: Row, devices: int) -> set[int]:
    count = round(row.part * devices)
    chosen = np.random.default_rng([row.seed, 6]).permutation(devices)[:count]
    return {int(one) for one in chosen}


def _prepared(row: Row, overrides: tuple[str, ...]) -> Prepared:
    data = SETS[row.data]
    sections: dict[str, dict[str, object]] = {
        "run": {"updates": data.updates, "keep_updates": False},
        "model": {"module": data.module, "data": data.uri},
        "coordination": {"learning_rate": data.rate, "window": 4096},
        "defence": {"mode": "none" if row.defence in ROUNDS else row.defence},
        "fleet": {
            "devices": data.devices,
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
    return prepare(file, Given(test=test if row.defence == "score" else set_apart(test)[1]))


@cache
def _test(uri: str) -> datasets.Dataset:
    return datasets.load(uri, "test")


def table(found: list[dict[str, Any]], sets: list[str], defences: tuple[str, ...] = DEFENCES) -> str:
    """Accuracy in percent, and points lost against the honest fleet with the first of the defences."""
    lines = []
    for data in sets:
        lines += [f"### {data}", "", f"| | {' | '.join(defences)} | seeds |"]
        lines.append("|---|" + "--:|" * (len(defences) + 1))
        cases = [("honest", "", 0.0, 0), ("honest, one label a device", "", 0.0, 1)]
        cases += [(f"{attack}, {part:.0%}", attack, part, 0) for part in PARTS for attack in ATTACKS]
        for text, attack, part, labels in cases:
            cells, seeds = [], 0
            for defence in defences:
                case = {"data": data, "attack": attack, "part": part, "labels": labels}
                here = _of(found, {**case, "defence": defence})
                base = _of(found, {"data": data, "attack": "", "labels": labels, "defence": defences[0]})
                both = here.keys() & base.keys()
                lost = fmean(100 * (base[seed] - here[seed]) for seed in both) if both else None
                mean = f"{100 * fmean(here.values()):.2f}" if here else "not run"
                cells.append(mean if lost is None else f"{mean} ({-lost:+.2f})")
                seeds = max(seeds, len(here))
            lines.append(f"| {text} | {' | '.join(cells)} | {seeds} |")
        lines.append("")
    return "\n".join(lines)


def _of(found: list[dict[str, Any]], case: dict[str, object]) -> dict[int, float]:
    """Seed -> accuracy of a case."""
    return {
        one["seed"]: one["accuracy"] for one in found if all(one[key] == value for key, value in case.items())
    }


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.defence", description=__doc__.split("\n")[0])
    parser.add_argument("--sets", nargs="+", default=["mnist", "fsdd"], choices=list(SETS))
    parser.add_argument("--seeds", type=int, default=1, help="0 .. N-1")
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose name has one of these in it")
    parser.add_argument("--rounds", action="store_true", help=f"rounds by {', '.join(ROUNDS)}")
    parser.add_argument("--set", dest="overrides", nargs="*", default=[], help="section.key=JSON, for all")
    parser.add_argument("--finished", action="store_true", help="run nothing, report what has been run")
    parser.add_argument("--output", type=Path, default=Path("edgeflock-defence"), help="keeps the rows")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    if "words" in asked.sets:
        archive = asked.output / "words.npz"
        if not archive.exists():
            words_npz(Path(_FOLDER) / "pos_ud_ewt.npz", archive)
        SETS["words"] = replace(SETS["words"], uri=f"npz:{archive}")
    defences = ROUNDS if asked.rounds else DEFENCES
    every = rows(asked.sets, asked.seeds, defences)
    wanted = [row for row in every if any(text in row.name for text in asked.only)]
    for row in () if asked.finished else wanted:
        path = asked.output / f"{row.name}.json"
        if not path.exists():
            text = json.dumps(run(row, asked.overrides))
            path.write_text(text + "\n")
            print(row.name, json.loads(text)["accuracy"], flush=True)
    found = [json.loads(path.read_text()) for path in sorted(asked.output.glob("*.json"))]
    print(table(found, asked.sets, defences))
    missing = [row.name for row in wanted if not (asked.output / f"{row.name}.json").exists()]
    if missing:
        print(f"Not run: {len(missing)} of {len(wanted)}: {', '.join(missing)}")


if __name__ == "__main__":
    main()
