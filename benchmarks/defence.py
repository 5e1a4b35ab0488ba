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
from edgeflock.shared.model.fields import rows as of_rows
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.torch_module import FlatModule
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


@dataclass(slots=True)
class Clock:
    """How far a run is."""

    updates: int
    made: int = 0

    @property
    def part(self) -> float:
        """0 at its beginning, 1 at its end."""
        return self.made / self.updates


@dataclass(slots=True)
class Batch:
    """What an attack may use."""

    backend: Backend
    theta: NDArray[np.float32]
    x: NDArray[np.float32]
    y: NDArray[Any]
    labels: int
    random: np.random.Generator

    def honest(self) -> Gradient:
        """What an honest device sends."""
        return self.backend.gradient(self.theta, self.x, self.y)


Spoil = Callable[[Batch], Gradient]
Awake = Callable[[float, float], bool]
"""(part of the run, the device's place among the bad ones from 0 to 1) -> whether it is bad now."""


def _times(factor: float) -> Spoil:
    def spoil(batch: Batch) -> Gradient:
        found = batch.honest()
        return found._replace(gradient=np.float32(factor) * found.gradient)

    return spoil


def _shifted(batch: Batch) -> Gradient:
    return batch.backend.gradient(batch.theta, batch.x, (batch.y + 1) % batch.labels)


def _random(batch: Batch) -> Gradient:
    found = batch.honest()
    noise = batch.random.standard_normal(found.gradient.size, np.float32)
    return found._replace(gradient=noise * (np.linalg.norm(found.gradient) / np.linalg.norm(noise)))


def triggered(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The samples with a trigger: four columns, or features, or a square of four by four, are 1."""
    marked = x.copy()
    marked[(..., *(slice(-4, None) for _ in range(min(2, x.ndim - 1))))] = 1
    return marked


def _backdoor(batch: Batch) -> Gradient:
    """Every second sample of a batch has the trigger, and the label 0."""
    x, y = batch.x.copy(), batch.y.copy()
    x[::2], y[::2] = triggered(x[::2]), 0
    return batch.backend.gradient(batch.theta, x, y)


def _always(part: float, place: float) -> bool:
    return True


def _late(part: float, place: float) -> bool:
    return part >= 0.5


def _in_turn(part: float, place: float) -> bool:
    """One after another, between a quarter and three quarters of the run."""
    return part >= 0.25 + 0.5 * place


def _by_turns(part: float, place: float) -> bool:
    """Honest for a twentieth of the run and bad for the next one."""
    return int(20 * part) % 2 == 1


ATTACKS: dict[str, tuple[Spoil, Awake]] = {
    "flip": (_times(-1), _always),
    "x100": (_times(100), _always),
    "shift": (_shifted, _always),
    "random": (_random, _always),
    "sleeper": (_times(-2.9), _late),
    "sleeper-x1": (_times(-1), _late),
    "sleeper-shift": (_shifted, _late),
    "sleeper-turns": (_times(-2.9), _in_turn),
    "sleeper-back": (_times(-2.9), _by_turns),
    "backdoor": (_backdoor, _always),
}


class Bad:
    """A backend whose gradients are of no use, or worse, while its device is awake."""

    def __init__(
        self, backend: Backend, attack: str, clock: Clock, place: float, labels: int, seed: list[int]
    ) -> None:
        self.name, self.layout = backend.name, backend.layout
        self._backend, self._clock, self._place, self._labels = backend, clock, place, labels
        self._spoil, self._awake = ATTACKS[attack]
        self._random = np.random.default_rng(seed)
        self.theta: NDArray[np.float32] | None = None
        """The last model it saw."""

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        self.theta = theta.copy()
        batch = Batch(self._backend, theta, x, y, self._labels, self._random)
        return self._spoil(batch) if self._awake(self._clock.part, self._place) else batch.honest()


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
    devices: int = 0
    """0: those of the set."""

    @property
    def name(self) -> str:
        kind = f"{self.attack}{self.part:.0%}" if self.attack else "honest"
        return f"{self.data}-{kind}{'-one-label' * bool(self.labels)}{f'-n{self.devices}' * bool(self.devices)}-{self.defence}-{self.seed}"


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
    devices = row.devices or data.devices
    bad, clock = _bad_ones(row, devices), Clock(data.updates)
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
        backends.append(Bad(backend, row.attack, clock, place, data.labels, [row.seed, 5, number]))
        return backends[-1]

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
        "trigger": _trigger(prepared, backends, row.seed) if row.attack == "backdoor" else None,
        "guard": {who: _decided(those) for who, those in shares.items() if those},
        "ended": result.ended,
        "updates": result.updates,
        "cpu_s": round(time.process_time() - began, 1),
    }


def _trigger(prepared: Prepared, backends: list[Bad], seed: int) -> float:
    """The part of the samples of other labels that the trigger turns into 0, by the model that a bad device
    saw last.
    """
    model, test = prepared.file.model, prepared.test
    flat = FlatModule(model.module, model.loss, seed, prepared.make)
    others = np.flatnonzero(test.y != 0)
    theta = backends[-1].theta
    assert theta is not None
    _, rate = flat.evaluate(theta, triggered(np.asarray(of_rows(test.x, others))), np.zeros_like(test.y[others]))
    return rate or 0.0


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
            "devices": row.devices or data.devices,
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
