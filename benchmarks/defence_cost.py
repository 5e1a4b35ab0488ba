"""What a defence adds to a push: the engine's CPU time with each mode over that without one, push by push.

    python -m benchmarks.defence_cost

P = 211,690, c = .01 with 4-bit values, from 16 devices in turn, a journal in memory. What `score` goes by is
of eleven random directions: ten classes and a movement. Prints JSON: medians, and their ratios.
"""

import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import load
from benchmarks.updates import random_update
from edgeflock.papers.machine import machine
from edgeflock.server.coordination import Push
from edgeflock.server.defence import Trusted
from edgeflock.server.engine import Accepted, Engine
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.journal import Journal
from edgeflock.server.ledger import open_engine
from edgeflock.shared.protocol import wire
from edgeflock.shared.settings.config import parse

MODES = ("none", "clip", "score")
_LAYOUT = load.PAPER_CNN
_DEVICES, _PUSHES = 16, 6_000


def opened(mode: str) -> Engine:
    settings = [f"defence.mode={mode}", "coordination.learning_rate=1e-6", "journal.keep_updates=false"]
    journal = Journal(Path(":memory:"), durable=False)
    theta = np.zeros(_LAYOUT.size, np.float32)
    journal.begin_run("run", "package:Model", _LAYOUT, theta, 0.0)
    for number in range(_DEVICES):
        journal.device_id(f"device-{number}")
    engine = open_engine(journal, _LAYOUT, parse(overrides=settings, tables=CHOICES))
    if mode == "score":
        directions = np.random.default_rng(1).standard_normal((_LAYOUT.size, 11), np.float32)
        assert engine.guard is not None
        engine.guard.set_trusted(Trusted(0, directions / np.linalg.norm(directions, axis=0)))
    return engine


def main() -> None:
    random = np.random.default_rng(0)
    updates = [random_update(_LAYOUT, 0.01, "codebook4", random) for _ in range(64)]
    engines = {mode: opened(mode) for mode in MODES}
    spent: dict[str, list[float]] = {mode: [] for mode in MODES}
    for number in range(_PUSHES):
        device, sequence = 1 + number % _DEVICES, 1 + number // _DEVICES
        update = replace(updates[number % 64], sequence=sequence, base=max(0, number - 100))
        push = Push(device, 0.0, update, wire.encode(update))
        for place in range(len(MODES)):  # each is first as often as last
            mode = MODES[(number + place) % len(MODES)]
            began = time.process_time()
            ((_, answer),) = engines[mode].commit([push])
            spent[mode].append(1e6 * (time.process_time() - began))
            assert isinstance(answer, Accepted), answer
    times = {mode: median(spent[mode]) for mode in MODES}
    found = {f"{mode}_us": round(times[mode], 1) for mode in MODES}
    over = {f"{mode}_over_none": round(times[mode] / times["none"], 3) for mode in MODES}
    print(json.dumps({"machine": machine(), **found, **over}, indent=2))


if __name__ == "__main__":
    main()
