"""What lossy differences cost a server: CPU time of a push with its model, memory of what devices hold.

    python -m benchmarks.publication [--data npz:mnist.npz] [--updates 3000] [--devices 200] [--copies 10000]

Prints JSON. `push_ms` is the CPU time of the engine for an update of the record, from its bytes to the
receipt with the model, in emulated fleets that differ in the downlink only. The second part, a process of its
own, lets `--copies` devices hold something of their own and pull twice more each, in random order.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.devices.emulation.fleet import prepare, run_fleet
from edgeflock.papers.machine import machine
from edgeflock.server.coordination import Push
from edgeflock.server.engine import Answer, Engine
from edgeflock.server.publication import publication_of
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol import chain
from edgeflock.shared.settings.config import Config
from edgeflock.shared.settings.presets import PRESETS

MODULE = "edgeflock.client.zoo:PaperCNN"


def fleet(data: str, devices: int, updates: int, downlink: dict[str, object]) -> FleetFile:
    """The record's fleet."""
    sections: dict[str, dict[str, object]] = {
        "end": {"updates": updates},
        "journal": {"keep_updates": False},
        "model": {"module": MODULE, "data": data},
        "coordination": {"learning_rate": 0.05, "window": 2048},
        "compression": {},
        "downlink": downlink,
        "limits": {},
        "fleet": {"devices": devices, "data": data, "evaluate_every": updates},
        "devices": {"all": {"step_ms": 1000, "timing": "exponential"}},
    }
    for path, value in PRESETS["low-bandwidth"].items():
        section, _, key = path.partition(".")
        sections[section][key] = value
    return FleetFile.model_validate(sections)


class TimedEngine:
    """Counts the CPU time of `commit`, by standing in for it."""

    def __init__(self) -> None:
        self.seconds, self.pushes = 0.0, 0
        self._commit = Engine.commit

    def __enter__(self) -> "TimedEngine":
        timed = self

        def commit(self: Engine, pushes: Sequence[Push], now: float = 0.0) -> list[tuple[Push, Answer]]:
            began = time.thread_time()
            settled = timed._commit(self, pushes, now)
            timed.seconds += time.thread_time() - began
            timed.pushes += len(pushes)
            return settled

        Engine.commit = commit  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Engine.commit = self._commit  # type: ignore[method-assign]


def push(data: str, devices: int, updates: int, downlink: dict[str, object]) -> dict[str, Any]:
    """One fleet."""
    with TimedEngine() as timed:
        result = run_fleet(prepare(fleet(data, devices, updates, downlink)), 0)
    (total,) = result.classes.values()
    rest = result.total_s - result.gradient_s - result.evaluation_s
    return {
        "downlink": downlink,
        "devices": devices,
        "updates": result.updates,
        "push_ms": round(timed.seconds / timed.pushes * 1e3, 3),
        "gradient_ms": round(result.gradient_s / result.updates * 1e3, 3),
        "rest_ms": round(rest / result.updates * 1e3, 3),
        "up_per_update": round(total.ingress / result.updates),
        "down_per_update": round(total.egress / result.updates),
    }


def copies(devices: int) -> dict[str, Any]:
    """Devices that all hold something else: memory, and the time of a pull."""
    layout = FlatModule(MODULE, "cross_entropy").layout
    random = np.random.default_rng(0)
    theta = random.standard_normal(layout.size).astype(np.float32)
    held = dict.fromkeys(range(1, devices + 1), (0, chain.FIRST))
    chains = dict.fromkeys(held, chain.FIRST)
    before, seconds, whole, pulls = _resident(), 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        lossy = publication_of(Config(), layout, 0, theta.copy(), Path(folder))
        order = np.concatenate([random.permutation(devices) + 1 for _ in range(3)])
        for version, device in enumerate(order.tolist(), 1):
            touched = random.choice(layout.size, 100, replace=False)
            theta[touched] += random.standard_normal(100).astype(np.float32)
            lossy.add(touched)
            began = time.perf_counter()
            model = lossy.model(theta, *held[device], device)
            seconds += time.perf_counter() - began
            pulls, whole = pulls + 1, whole + (model.base is None)
            chains[device] = chain.follow(chains[device], model)
            held[device] = version, chain.low_bits(chains[device])
    return {
        "devices": devices,
        "resident_mb": round(_resident() / 1e6),
        "resident_mb_before": round(before / 1e6),
        "pull_ms": round(seconds / pulls * 1e3, 2),
        "whole_models": whole,
    }


def _resident() -> int:
    """Bytes."""
    return int(psutil.Process().memory_info().rss)


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.publication", description=__doc__.split("\n")[0])
    folder = os.environ.get("EDGEFLOCK_DATA", ".")
    parser.add_argument("--data", default=f"npz:{folder}/mnist.npz")
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--copies", type=int, default=10_000)
    arguments = parser.parse_args()
    downlinks: tuple[dict[str, object], ...] = ({"mode": "exact"}, {"mode": "lossy"})
    rows = [push(arguments.data, arguments.devices, arguments.updates, downlink) for downlink in downlinks]
    with multiprocessing.get_context("spawn").Pool(1) as alone:
        held = alone.apply(copies, (arguments.copies,)) if arguments.copies else None
    print(json.dumps({"machine": machine(), "pushes": rows, "copies": held}, indent=2))


if __name__ == "__main__":
    main()
