"""One cell: its data dealt out, its arm run, its figures.

EDGEFLOCK_BENCH_ACCELERATOR, e.g. cuda: where torch computes; without it on the processor.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from benchmarks.learning.arms import Arm, parsed
from benchmarks.learning.cells import Cell
from benchmarks.learning.data import Data, loaded
from benchmarks.learning.measuring import Score
from benchmarks.learning.rivals.federation import Federation, Rival, simulate
from benchmarks.learning.shares import SLOWER, Shares, deal
from benchmarks.learning.tasks import TASKS, Task
from edgeflock.devices.emulation.config import FleetFile, headcount
from edgeflock.devices.emulation.fleet import FleetObjects, PreparedFleet, prepare, run_fleet
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.model.fields import rows
from edgeflock.shared.protocol.frames import Evaluation

STEP_MS = 1000
"""The mean time of a step of a device that is not slow; times are exponential, the network takes none."""
LAST = 3
"""Evaluations at the end, whose mean counts."""


@dataclass(slots=True)
class Curve:
    """What each evaluation found."""

    score: Score
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, evaluation: Evaluation, gradients: int) -> None:
        """One evaluation after so many gradients; the score has seen all of its outputs."""
        if self.score.pending:  # a fleet has computed and reset it by now
            self.score.compute()
            self.score.reset()
        row = {"gradients": gradients, "accuracy": round(self.score.value, 5), "loss": evaluation.loss}
        row |= {
            "seconds": round(evaluation.time, 3),
            "ingress": evaluation.ingress,
            "egress": evaluation.egress,
        }
        self.rows.append(row)


def play(cell: Cell, tasks: Mapping[str, Task] = TASKS) -> dict[str, Any]:
    """The figures of a cell: a function of the cell and the code, but for the CPU's seconds."""
    torch.set_num_threads(1)
    if accelerator := os.environ.get("EDGEFLOCK_BENCH_ACCELERATOR"):
        torch.set_default_device(accelerator)
    task, arm = tasks[cell.task], parsed(cell.arm)
    data = loaded(task.load)
    shares = deal(cell.data, data.train_groups, cell.n, task.batch, cell.seed)
    score = Score(data.test_groups if data.scores_groups else None, len(data.names))
    prepared = prepared_of(task, arm, data, shares, cell.seed, score)
    curve, began = Curve(score), time.process_time()
    if arm.rival is None:
        ended = _fleet(prepared, cell.seed, curve)
    else:
        ended = _rival(arm.rival, prepared, task, shares, cell.seed, curve)
    return {**ended, **_figures(curve, ended, data), "cpu_s": round(time.process_time() - began, 2)}


def prepared_of(task: Task, arm: Arm, data: Data, shares: Shares, seed: int, score: Score) -> PreparedFleet:
    """The fleet of a cell. Only what the task must say is set, and the arm's settings.

    An emulated fleet deals its classes out at random by the seed, so shares of slow devices are put where the
    slow class lands.
    """
    file = fleet_file(task, arm, len(shares.of), len(shares.slow), shares.crash(task.gradients))
    given = FleetObjects(data.train, data.test, metrics={"score": score})
    prepared = prepare(file, given)
    score.reset()
    order = places(file, shares, seed)
    dealt = [Dataset(rows(data.train.x, shares.of[one]), data.train.y[shares.of[one]]) for one in order]
    return replace(prepared, shares=dealt)


def fleet_file(task: Task, arm: Arm, devices: int, slow: int, crash: float = 0.0) -> FleetFile:
    """The settings of a cell's fleet, with the probability of a crash after each update, of one gradient."""
    kind: dict[str, object] = {"step_ms": STEP_MS, "timing": "exponential", "crash": crash}
    if "injection.alpha" in arm.settings:
        kind["shares"] = True
    classes: dict[str, object] = {"fast": {**kind, "share": devices - slow}}
    if slow:
        classes["slow"] = {**kind, "step_ms": SLOWER * STEP_MS, "share": slow}
    sections: dict[str, dict[str, object]] = {
        "local": {"batch": task.batch},
        "journal": {"keep_updates": False},
        "model": {"module": task.module, "loss": task.loss, "data": "of the bench"},
        "fleet": {"devices": devices, "data": "of the bench"},
        "devices": classes,
    }
    for path, value in arm.settings.items():
        section, _, key = path.partition(".")
        sections.setdefault(section, {})[key] = value
    file = FleetFile.model_validate(sections, context=CHOICES)
    steps = file.local.steps
    end = file.end.model_copy(update={"updates": max(1, task.gradients // steps)})
    every = max(1, task.gradients // task.evaluations // steps)
    fleet = file.fleet.model_copy(update={"evaluate_every": every})
    return file.model_copy(update={"end": end, "fleet": fleet})


def places(file: FleetFile, shares: Shares, seed: int) -> list[int]:
    """Which share lies at each place of the emulated fleet, in the order of its `members`."""
    counts = headcount(file.classes, file.fleet.devices)
    names = np.random.default_rng([seed, 0]).permutation(np.repeat(list(counts), [*counts.values()]))
    fast = iter(share for share in range(len(shares.of)) if share not in shares.slow)
    slow = iter(sorted(shares.slow))
    return [next(slow if name == "slow" else fast) for name in names]


def _fleet(prepared: PreparedFleet, seed: int, curve: Curve) -> dict[str, Any]:
    steps, findings = prepared.file.local.steps, set()
    listening = Callbacks(
        on_evaluated=lambda one: curve.add(one, one.version * steps),
        on_finding=lambda one: findings.add(str(one.kind)),
    )
    result = run_fleet(prepared, seed, listening)
    return {
        "ended": result.ended,
        "updates": result.updates,
        "gradients": result.updates * steps,
        "size": result.size,
        "digest": result.digest[:16],
        "findings": sorted(findings),
    }


def _rival(
    rival: Rival, prepared: PreparedFleet, task: Task, shares: Shares, seed: int, curve: Curve
) -> dict[str, Any]:
    names = places(prepared.file, shares, seed)
    slow = frozenset(place for place, share in enumerate(names) if share in shares.slow)
    crash = shares.crash(task.gradients)
    run = Federation.of(prepared, seed, rival.values, slow, SLOWER, rival.central, crash)
    ended = simulate(
        *(rival, prepared, seed, task.gradients, task.gradients // task.evaluations),
        progress=lambda one: curve.add(one, run.gradients),
        seen=curve.score.update,
        federation=run,
    )
    return {
        "ended": ended["ended"],
        "updates": ended["updates"],
        "gradients": run.gradients,
        "size": run.theta.size,
    }


def _figures(curve: Curve, ended: Mapping[str, Any], data: Data) -> dict[str, Any]:
    last, tail = curve.rows[-1], curve.rows[-LAST:]
    groups = [None if one is None else round(one, 4) for one in curve.score.groups]
    known = {name: one for name, one in zip(data.names, groups, strict=False) if one is not None}
    return {
        "accuracy": last["accuracy"],
        "mean_of_last": round(sum(row["accuracy"] for row in tail) / len(tail), 5),
        "worst": min(known.values(), default=None),
        "groups": known,
        "seconds": last["seconds"],
        "ingress": last["ingress"],
        "egress": last["egress"],
        "dense": 8 * ended["size"] * ended["gradients"],
        "curve": curve.rows,
    }
