"""Every optimizer of the server on four data sets, with the field's rivals. 200 emulated devices.

    python -m benchmarks.optimizers [--task NAME] [--only NAME] [--seeds N] [--processes N] [--finished]

MNIST (the paper's CNN), CIFAR-10 (ResNetGN), spoken digits (SpeechCNN) and parts of speech (WordMLP), dealt
out evenly, 10 samples a step. All of Edgeflock's rows send and get what `preset = "low-bandwidth"` does, but
for the optimizer; so do those of FedBuff's rule in the server. FedAvg, FedProx, FedBuff and FedAsync are
benchmarks/learning/rivals', dense, from 1 and 5 epochs. Own steps send and get more at a time: in rounds of
all devices, or in turns of a few. Of a method with several settings the best one counts: the highest accuracy
of its task that was reached, with the fewest bytes both ways. Each setting gets seed 0, the best one all.

Runs are kept in --output, one file a setting and seed: what has ended is not run again, several processes may
run different rows at a time, and --finished reports what there is. Leaves optimizers.md in --report.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.both_ways import Row, chosen, measured
from benchmarks.learning.rivals.asynchronous import FedAsync, FedBuff
from benchmarks.learning.rivals.averaging import FedAvg
from benchmarks.learning.rivals.federation import Rival
from benchmarks.optimizers_report import PLAIN, best, methods, table
from benchmarks.words import words_npz
from edgeflock.devices.emulation.config import FleetFile
from edgeflock.papers.machine import machine
from edgeflock.results.sweep import outcome, sweep
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.presets import PRESETS

DEVICES = 200
TOGETHER: dict[str, object] = {
    "coordination.mode": "rounds",
    "coordination.average": 0.0,
    "compression.select": 0.002,
    "downlink.select": 0.004,
    "downlink.share": 0.0,
}
"""What is worth many gradients may be longer."""


@dataclass(frozen=True, slots=True)
class Own:
    """Rounds in which devices take many steps of their own."""

    steps: int
    local_rate: float
    rate: float
    """The server's."""
    updates: int
    """At most. More gradients are computed than otherwise; how many, the table says."""
    cohort: int = 0
    """Devices of a round, in turn, as `preset = "cohort"` has it; 0: all, and longer messages."""
    more: dict[str, object] = field(default_factory=dict)
    """Other settings of a cohort."""

    @property
    def method(self) -> str:
        return "own steps, in turns" if self.cohort else "own steps in rounds"

    @property
    def setting(self) -> str:
        steps = f"{self.steps} steps at {self.local_rate:g}, rate {self.rate:g}"
        return f"{self.cohort} devices, {steps}" if self.cohort else steps

    @property
    def settings(self) -> dict[str, object]:
        usual = {**PRESETS["cohort"], "coordination.cohort": self.cohort, "compression.select": 0.0}
        how = {**usual, **self.more} if self.cohort else TOGETHER
        return {
            **how,
            "local.steps": self.steps,
            "local.rate": self.local_rate,
            "coordination.learning_rate": self.rate,
            "coordination.deadline": 1e6,
            "fleet.evaluate_every": self.cohort or DEVICES,
        }


@dataclass(frozen=True, slots=True)
class Task:
    """Data, what is trained on them, for how long, and how good it may get."""

    name: str
    file: str
    module: str
    gradients: int
    accuracies: tuple[float, ...]
    rates: tuple[float, ...]
    """Of plain SGD, and of what local steps descend by."""
    own: tuple[Own, ...]
    evaluations: int = 80
    settings: dict[str, object] = field(default_factory=dict)

    def fleet(self, folder: Path, settings: dict[str, object]) -> FleetFile:
        """The fleet with these settings over the task's own."""
        data, every = f"npz:{folder / self.file}", self.gradients // self.evaluations
        sections: dict[str, dict[str, object]] = {
            "model": {"module": self.module, "data": data},
            "fleet": {"devices": DEVICES, "data": data, "evaluate_every": max(1, every)},
            "devices": {"all": {"step_ms": 1000, "timing": "exponential"}},
        }
        own = {"end.updates": self.gradients, "journal.keep_updates": False, "coordination.window": 4096}
        for path, value in {**own, **self.settings, **settings}.items():
            section, _, key = path.partition(".")
            sections.setdefault(section, {})[key] = value
        return FleetFile.model_validate(sections, context=CHOICES)


# A small model takes more entries of it, one that is slow to begin fewer, so that it does not go astray.
LONGER: dict[str, object] = {"compression.select": 0.02, "downlink.select": 0.03, "downlink.share": 0.5}
SHORTER: dict[str, object] = {"compression.select": 0.001}

TASKS = (
    Task("mnist", "mnist.npz", "edgeflock.client.zoo:PaperCNN", 40_000, (0.9, 0.95, 0.97),
         (0.035, 0.07, 0.14), (Own(90, 0.1, 0.3, 2600), Own(30, 0.1, 0.5, 2400, 20))),
    Task("cifar", "cifar10_jpgblob.npz", "edgeflock.client.zoo:ResNetGN", 20_000, (0.2, 0.25, 0.3),
         (0.025, 0.05, 0.1), (Own(75, 0.1, 0.3, 600, 20, LONGER),), 40),
    Task("fsdd", "fsdd_logmel.npz", "edgeflock.client.zoo:SpeechCNN", 20_000, (0.8, 0.9, 0.95),
         (0.025, 0.05, 0.1), (Own(15, 0.1, 0.3, 4000, 40, SHORTER),)),
    Task("pos", "words.npz", "benchmarks.words:WordMLP", 40_000, (0.8, 0.85, 0.87),
         (0.05, 0.1, 0.2), (Own(200, 0.2, 0.5, 2600), Own(100, 0.2, 0.5, 3000, 20))),
)  # fmt: skip

RECORD = PRESETS["low-bandwidth"]


def optimizers(task: Task) -> Iterator[tuple[str, str, dict[str, object]]]:
    """(Method, setting, settings), each at its own grid of rates.

    Steps are of the entries that updates name: an entry of a thousand steps a thousandth as often, and rates
    are as many times those of dense training as fit. What momentum repeats, the rate is divided by.
    """
    how: dict[str, object]
    for rate in task.rates:
        yield PLAIN, f"rate {rate:g}", {"coordination.learning_rate": rate}
    for kind in ("momentum", "nesterov"):
        for beta in (0.3, 0.9):
            for part in (1, 2):
                rate = round(part * (1 - beta) * task.rates[1], 6)
                how = {"optimizer.kind": kind, "optimizer.beta1": beta, "coordination.learning_rate": rate}
                yield kind, f"beta {beta:g}, rate {rate:g}", how
    for beta in (0.0, 0.9):
        for rate in (0.003, 0.01, 0.03):
            how = {"optimizer.kind": "adam", "optimizer.beta1": beta, "coordination.learning_rate": rate}
            yield "adam", f"beta {beta:g}, rate {rate:g}", how
    for rate in (0.003, 0.01):
        how = {"optimizer.kind": "adamw", "optimizer.weight_decay": 0.01, "optimizer.beta1": 0.0}
        yield "adamw", f"decay 0.01, rate {rate:g}", {**how, "coordination.learning_rate": rate}
    for rate in task.rates[1:]:  # updates are of two steps: a cosine ends with the run
        how = {"optimizer.schedule": "cosine", "optimizer.period": task.gradients // 2}
        yield "sgd, cosine", f"rate {rate:g}", {**how, "coordination.learning_rate": rate}
    for rate in (0.5, 1.0, 2.0):
        how = {"coordination.mode": "buffer", "coordination.rule": "sqrt"}
        yield "buffer of 10", f"rate {rate:g}", {**how, "coordination.learning_rate": rate}
    for rate in task.rates[:2]:
        own = {"local.steps": 5, "local.momentum": 0.9, "local.rate": 0.01}
        yield "own steps, momentum", f"rate {rate:g}", {**own, "coordination.learning_rate": rate / 10}


def rivals(task: Task) -> Iterator[tuple[str, str, Rival]]:
    """The field's, at the rates of the task: rounds of 10 clients, or 20 that train at any time."""
    for rate in (task.rates[1], 2 * task.rates[1]):
        for epochs in (1, 5):
            setting = f"E={epochs}, rate {rate:g}"
            yield "FedAvg", setting, FedAvg(rate, epochs)
            yield "FedProx", f"{setting}, mu 0.01", FedAvg(rate, epochs, proximal=0.01)
        yield "FedBuff K=10", f"rate {rate:g}", FedBuff(rate, training=20)
        for alpha in (0.2, 0.6):
            yield "FedAsync", f"alpha {alpha:g}, rate {rate:g}", FedAsync(rate, training=20, mixing=alpha)


def rows(task: Task, folder: Path, gradients: int = 0) -> Iterator[Row]:
    """All of a task. `gradients` of each as it says; 0: as the task does."""
    task = replace(task, gradients=gradients or task.gradients)
    found = [(*one, 0) for one in optimizers(task)]
    found += [(own.method, own.setting, own.settings, own.updates) for own in task.own]
    for method, setting, settings, updates in found:
        file = task.fleet(folder, {**RECORD, **settings})
        if gradients or not updates:
            updates = max(1, task.gradients // file.local.steps)
        end = file.end.model_copy(update={"updates": updates})
        yield Row(method, setting, file.model_copy(update={"end": end}), until=task.accuracies[-1])
    for method, setting, how in rivals(task):
        yield Row(method, setting, task.fleet(folder, {}), how, task.accuracies[-1])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.optimizers", description=__doc__.split("\n")[0])
    folder = Path(os.environ.get("EDGEFLOCK_DATA", "."))
    names = [task.name for task in TASKS]
    parser.add_argument("--data", type=Path, default=folder, help="where the data sets lie")
    parser.add_argument("--task", action="append", default=[], choices=names, help="may be repeated")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a row; may be repeated")
    seeds = "0 .. N-1, of each method's best setting; the others get 0"
    parser.add_argument("--seeds", type=int, default=3, help=seeds)
    parser.add_argument("--gradients", type=int, default=0, help="of each row; 0: as the task says")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--finished", action="store_true", help="run nothing, report what has been run")
    parser.add_argument("--output", type=Path, default=Path("edgeflock-optimizers"), help="keeps the runs")
    parser.add_argument("--report", type=Path, default=Path("docs/results"))
    asked = parser.parse_args(arguments)
    tasks = [task for task in TASKS if task.name in (asked.task or names)]
    command = shlex.join(["python", "-m", "benchmarks.optimizers", *arguments])
    lines = [f"# Optimizers\n\n`{command}`\n\n{machine()}\n"]
    for task in tasks:
        place = asked.data
        if task.name == "pos":
            place = asked.output
            place.mkdir(parents=True, exist_ok=True)
            if not (place / task.file).exists():
                words_npz(asked.data / "pos_ud_ewt.npz", place / task.file)
        out = asked.output / task.name
        try:
            some = chosen(list(rows(task, place, asked.gradients)), asked.only)
        except ConfigError as error:
            parser.error(str(error))
        if not asked.finished:
            sweep([job for row in some if outcome(job := row.job(0, out)) is None], asked.processes)
            tried = methods(measured(some, range(1), out))
            winners = {best(each, task.accuracies).runs.label for each in tried.values()}
            others = range(1, asked.seeds)
            jobs = [row.job(seed, out) for seed in others for row in some if row.name in winners]
            sweep([job for job in jobs if outcome(job) is None], asked.processes)
        lines += table(task.name, task.accuracies, measured(some, range(asked.seeds), out))
    asked.report.mkdir(parents=True, exist_ok=True)
    (asked.report / "optimizers.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
