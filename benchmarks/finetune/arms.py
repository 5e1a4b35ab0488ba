"""Who fine-tunes: eight devices with the product, or one machine that has all texts. Both train adapters."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.finetune.domain import DEVICES, Domain, domain, module, weights
from benchmarks.learning.rivals.moves import AdamState
from edgeflock.client.data import Shuffled
from edgeflock.devices.emulation.config import FleetFile, parse
from edgeflock.devices.emulation.fleet import FleetObjects, prepare, run_fleet
from edgeflock.server.hosting.weights import first_model
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.shared.model.torch_module import FlatModule

LORA: dict[str, object] = {"rank": 8, "alpha": 16.0, "targets": ["*.q", "*.v"]}
LAST = 3
"""Evaluations at the end, whose mean counts."""


@dataclass(frozen=True, slots=True)
class Task:
    """What both learn."""

    size: str
    batch: int
    gradients: int
    """Of all devices together, and of the one machine."""
    tested: int
    """Samples to evaluate on."""
    evaluations: int = 10
    seed: int = 0


TASKS = {
    "tiny": Task("tiny", 16, 1_600, 128),
    "short": Task("tiny", 4, 600, 128, evaluations=6),
    "long": Task("tiny", 4, 4_800, 128, evaluations=8),
    "whole": Task("whole", 2, 480, 64),
    "whole-long": Task("whole", 2, 2_400, 64),
}


def fleet(task: Task, folder: Path, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Run the emulated fleet with the product's defaults, and `settings` such as local.steps=4."""
    data = domain(folder, task.size, task.tested)
    file = _file(task, folder, settings)
    prepared = prepare(file, FleetObjects(data.train, data.test))
    curve: list[dict[str, Any]] = []
    steps, began = file.local.steps, time.process_time()
    result = run_fleet(
        replace(prepared, shares=data.shares),
        task.seed,
        Callbacks(
            on_evaluated=lambda one: curve.append(
                {
                    "gradients": one.version * steps,
                    "loss": one.loss,
                    "accuracy": one.accuracy,
                    "ingress": one.ingress,
                    "egress": one.egress,
                }
            )
        ),
    )
    return {
        **_summary(curve),
        "ingress": curve[-1]["ingress"],
        "egress": curve[-1]["egress"],
        "adapters": result.size,
        "base": weights(folder, task.size).stat().st_size,
        "ended": result.ended,
        "cpu_s": round(time.process_time() - began),
    }


def _file(task: Task, folder: Path, settings: Sequence[str]) -> FleetFile:
    sections: dict[str, object] = {
        "local": {"batch": task.batch},
        "journal": {"keep_updates": False},
        "end": {"updates": task.gradients},
        "model": {
            "module": module(task.size),
            "loss": "next_token",
            "weights": str(weights(folder, task.size)),
            "lora": LORA,
            "data": "of the bench",
        },
        "fleet": {"devices": DEVICES, "data": "of the bench"},
        "devices": {"phone": {"step_ms": 1000, "timing": "exponential"}},
    }
    file = parse("", "the benchmark", settings, sections)
    count = task.gradients // file.local.steps
    end = file.end.model_copy(update={"updates": count})
    every = file.fleet.model_copy(update={"evaluate_every": max(1, count // task.evaluations)})
    return file.model_copy(update={"end": end, "fleet": every})


def central(task: Task, folder: Path, settings: Sequence[str]) -> dict[str, Any]:
    """Train the same adapters on one machine with AdamW, no weight decay, batches of all texts.

    `settings` are the rate and, if it is to fall to zero along a cosine, "cosine".
    """
    rate, falls = float(settings[0]), "cosine" in settings[1:]
    data = domain(folder, task.size, task.tested)
    lora = _file(task, folder, ()).model.adapters
    flat = FlatModule(module(task.size), "next_token", task.seed, lora=lora)
    theta, _ = first_model(flat, str(weights(folder, task.size)), task.seed)
    batches = Shuffled(data.train, np.random.default_rng([task.seed, 1]))
    move, curve, began = AdamState(rate), [_evaluated(flat, theta, data, 0)], time.process_time()
    for step in range(1, task.gradients + 1):
        if falls:
            move.rate = rate * (1 + math.cos(math.pi * (step - 1) / task.gradients)) / 2
        move(theta, flat.gradient(theta, *batches.take(task.batch)).gradient)
        if step % (task.gradients // task.evaluations) == 0:
            curve.append(_evaluated(flat, theta, data, step))
    return {**_summary(curve), "cpu_s": round(time.process_time() - began)}


def _evaluated(flat: FlatModule, theta: Any, data: Domain, gradients: int) -> dict[str, Any]:
    loss, accuracy = flat.evaluate(theta, data.test.x, data.test.y, batch=16)
    return {"gradients": gradients, "loss": loss, "accuracy": accuracy}


def _summary(curve: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the last evaluation, and means of the last three."""
    last = curve[-LAST:]
    return {
        "loss": curve[-1]["loss"],
        "accuracy": curve[-1]["accuracy"],
        "mean_loss": float(np.mean([row["loss"] for row in last])),
        "mean_accuracy": float(np.mean([row["accuracy"] for row in last])),
        "curve": curve,
    }
