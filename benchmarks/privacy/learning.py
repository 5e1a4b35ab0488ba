"""Accuracy at a privacy budget: fleets in which the server adds noise, and central DP-SGD.

    python -m benchmarks.privacy.learning [--sets digits mnist mnist-1000] [--seeds N] [--output FOLDER]
    python -m benchmarks.privacy.learning --sets digits-cnn --arms sums plain central --seeds 3

A fleet hides a device; 10% of the time a device is away. `rounds` sums 90% of the devices in each round, with
independent noise. `buffer` sums ten updates a step, with trees of eight steps. `sums` has secret sums of some
entries, and `plain` the same rounds without secrecy, of each device's largest entries. In both each device
falls silent in 10% of the rounds. Central DP-SGD has all data in one place and hides an example, which is a
weaker promise for the same epsilon. All have the same models. The clipped row has the same steps with next to
no noise. delta is 1 / n^1.1, n the number of devices or examples.

Adds each run to learning.jsonl in --output; runs that it has are not run again.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.learning.data import tagged_words
from benchmarks.privacy.calibration import sampled_noise
from benchmarks.privacy.models import EndingTagger, PooledMnist
from benchmarks.private_sums import DEADLINE, dropping
from edgeflock.client.zoo import DigitsCNN, DigitsLinear, PaperCNN
from edgeflock.devices.emulation.config import FleetFile, parse
from edgeflock.devices.emulation.fleet import FleetObjects, prepare, run_fleet
from edgeflock.papers.machine import machine
from edgeflock.server.privacy import Accountant
from edgeflock.shared.data.datasets import load
from edgeflock.shared.data.samples import Dataset
from edgeflock.shared.protocol.frames import Evaluation

BUDGETS = (2.0, 8.0, 0.0)
"""epsilon; 0: clipped, with next to no noise."""


class Task(NamedTuple):
    data: str
    module: str
    make: type[nn.Module]
    devices: int
    participations: int
    """Updates of a device."""
    rate: float
    """Of the server's steps in rounds; those of buffers are a third of it."""
    central: tuple[int, int, float]
    """Batch, steps and rate of central DP-SGD."""
    silent: tuple[float, float, float] = (1.0, 1.0, 0.0)
    """Of `sums` and `plain`: compression.select, privacy.clip, compression.feedback."""


TAGGED = "parts of speech"
_FOLDER = os.environ.get("EDGEFLOCK_DATA", ".")
TASKS = {
    "digits": Task(
        "digits:", "edgeflock.client.zoo:DigitsLinear", DigitsLinear, 100, 30, 1.0, (256, 200, 1.0)
    ),
    "digits-cnn": Task(
        "digits:", "edgeflock.client.zoo:DigitsCNN", DigitsCNN, 100, 30, 1.0, (256, 200, 1.0),
        (0.1, 1.0, 1.0),
    ),
    "digits-cnn-0.3": Task(
        "digits:", "edgeflock.client.zoo:DigitsCNN", DigitsCNN, 100, 30, 1.0, (256, 200, 1.0),
        (0.3, 1.0, 1.0),
    ),
    "mnist-cnn": Task(
        f"npz:{_FOLDER}/mnist.npz", "edgeflock.client.zoo:PaperCNN", PaperCNN, 100, 20, 1.0, (600, 100, 1.0),
        (0.1, 1.0, 1.0),
    ),
    "mnist": Task(
        f"npz:{_FOLDER}/mnist.npz", "benchmarks.privacy.models:PooledMnist", PooledMnist, 100, 20, 1.0,
        (600, 500, 1.0),
    ),
    "mnist-1000": Task(
        f"npz:{_FOLDER}/mnist.npz", "benchmarks.privacy.models:PooledMnist", PooledMnist, 1000, 10, 1.0,
        (600, 500, 1.0),
    ),
    "tagging": Task(
        TAGGED, "benchmarks.privacy.models:EndingTagger", EndingTagger, 100, 30, 4.0, (256, 200, 16.0),
        (0.1, 1.0, 1.0),
    ),
}  # fmt: skip


def sets(task: Task) -> tuple[Dataset, Dataset]:
    """Return its data to train and to test on."""
    if task.data == TAGGED:
        words = tagged_words()
        return words.train, words.test
    return load(task.data, "train"), load(task.data, "test")


def fleet(task: Task, mode: str, epsilon: float) -> FleetFile:
    """The settings of a fleet."""
    quorum = task.devices * 9 // 10
    settings: dict[str, object] = {
        "fleet.devices": task.devices,
        "fleet.data": task.data,
        "fleet.evaluate_every": quorum,
        "model.data": task.data,
        "model.module": task.module,
        "local.batch": 14,
        "local.steps": 5,
        "local.rate": 0.1,
        "local.optimizer": "sgd",
        "coordination.mode": mode,
        "coordination.average": 0,
        "coordination.learning_rate": task.rate,
        "compression.select": 1,
        "compression.indices": "golomb",
        "compression.values": "f32",
        "compression.feedback": 0,
        "downlink.mode": "exact",
        "evaluation.recover": "false",
        "devices.one.step_ms": 100,
        "devices.one.session_s": 4.5,
        "devices.one.away_s": 0.5,
        "privacy.mode": "server",
        "privacy.devices": task.devices,
        "privacy.participations": task.participations,
        "end.updates": quorum * task.participations,
    }
    if mode in ("sums", "plain"):
        select, clip, feedback = task.silent
        settings |= {
            "coordination.mode": "private" if mode == "sums" else "rounds",
            "coordination.quorum": quorum if mode == "plain" else 3,
            "coordination.deadline": DEADLINE,
            "compression.select": select,
            "compression.feedback": feedback,
            "privacy.clip": clip,
            "devices.one.away_s": 0,
            "devices.one.session_s": 0,
        }
        if mode == "sums":
            settings |= {"coordination.bits": 6, "coordination.cohort": task.devices}
            settings |= {"end.updates": task.participations, "fleet.evaluate_every": 1}
    elif mode == "rounds":
        settings |= {"coordination.quorum": quorum}
    else:
        settings |= {"coordination.buffer": 10, "coordination.learning_rate": task.rate / 3}
        settings |= {"privacy.tree": 8}
    settings |= {"privacy.epsilon": epsilon} if epsilon else {"privacy.noise": 1e-6}
    return parse("", "benchmark", overrides=[f"{key}={value}" for key, value in settings.items()])


def run(task: Task, mode: str, epsilon: float, seed: int) -> dict[str, object]:
    """Run a fleet, and return its row."""
    file, evaluations = fleet(task, mode, epsilon), list[Evaluation]()
    silent = 0.1 if mode in ("sums", "plain") else 0.0
    with dropping(silent, np.random.default_rng(seed)) as drops:
        objects = FleetObjects(*sets(task)) if task.data == TAGGED else FleetObjects()
        result = run_fleet(prepare(file, objects), seed, stop=evaluations.append)
    accountant, last = Accountant(file), evaluations[-1]
    rounds = task.devices * task.participations
    return {
        "accuracy": last.accuracy,
        "mean_of_three": float(np.mean([one.accuracy or 0 for one in evaluations[-3:]])),
        "curve": [round(one.accuracy or 0, 4) for one in evaluations],
        "silent": len(drops),
        "up_kB": round(last.ingress / rounds / 1e3, 2),
        "down_kB": round(last.egress / rounds / 1e3, 2),
        "noise": accountant.noise,
        "delta": accountant.delta,
        "updates": result.updates,
    }


def central(task: Task, epsilon: float, seed: int) -> dict[str, object]:
    """DP-SGD (M. Abadi et al., CCS 2016, algorithm 1), each batch a Poisson sample; its row."""
    size, steps, rate = task.central
    train, test = sets(task)
    x, y = torch.from_numpy(np.asarray(train.x)), torch.from_numpy(np.asarray(train.y).astype(np.int64))
    chance, delta = size / len(x), len(x) ** -1.1
    noise = 1e-6
    if epsilon:
        noise = sampled_noise(chance, steps, epsilon, delta)
    torch.manual_seed(seed)
    module = task.make()
    theta: dict[str, Tensor] = dict(module.named_parameters())

    def loss(theta: dict[str, Tensor], one: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(module, theta, (one[None],)), target[None])

    gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    for _ in range(steps):
        chosen = torch.rand(len(x)) < chance
        found = gradients(theta, x[chosen], y[chosen])
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in found.values()]).norm(dim=0)
        scale = 1 / norms.clamp(min=1)
        with torch.no_grad():
            for name, one in theta.items():
                total = torch.einsum("n,n...->...", scale, found[name]) + noise * torch.randn_like(one)
                one.sub_(rate * total / size)
    with torch.no_grad():
        right = module(torch.from_numpy(np.asarray(test.x))).argmax(1).numpy() == np.asarray(test.y)
    known = np.asarray(test.y).astype(np.int64) >= 0
    return {"accuracy": float(right[known].mean()), "noise": noise, "delta": delta, "updates": steps}


def work(asked: argparse.Namespace) -> Iterator[tuple[str, str, float, int]]:
    """Return (set, arm, epsilon, seed) of all runs."""
    for name in asked.sets:
        for seed in range(asked.seeds):
            for epsilon in BUDGETS:
                for arm in asked.arms:
                    yield name, arm, epsilon, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["digits"], choices=list(TASKS))
    parser.add_argument("--arms", nargs="+", default=["rounds", "buffer", "central"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("privacy"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.output.mkdir(parents=True, exist_ok=True)
    kept = asked.output / "learning.jsonl"
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for name, arm, epsilon, seed in work(asked):
        key = {"set": name, "arm": arm, "epsilon": epsilon, "seed": seed}
        if any(row.items() >= key.items() for row in done):
            continue
        began, task = time.process_time(), TASKS[name]
        row = central(task, epsilon, seed) if arm == "central" else run(task, arm, epsilon, seed)
        row = {**key, **row, "cpu_s": round(time.process_time() - began, 1), "machine": machine()}
        with kept.open("a") as file:
            print(json.dumps(row), file=file)
        print(name, arm, epsilon, seed, row["accuracy"], flush=True)


if __name__ == "__main__":
    main()
