"""Private runs of a small model, with the real journal and engine."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.engine import Engine
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.opening import open_engine
from edgeflock.shared.settings import config
from tests.server.pushes import LAYOUT, THETA, commit, dense_update, push

BUFFER = (
    "coordination.mode=buffer", "coordination.buffer=2", "coordination.rule=none", "coordination.average=0",
    "coordination.learning_rate=1", "privacy.mode=server", "privacy.noise=0.5", "privacy.devices=100",
)  # fmt: skip
ROUNDS = (*BUFFER, "coordination.mode=rounds", "coordination.buffer=10", "coordination.quorum=2")

Vector = NDArray[np.float32]


def begin(directory: Path, *overrides: str, settings: Sequence[str] = BUFFER) -> tuple[Journal, Engine]:
    """Begin the private run in `directory`, or resume it."""
    journal = Journal(directory / "journal.sqlite")
    if journal.run() is None:
        journal.begin_run("run", "package:Model", LAYOUT, THETA, 1_700_000_000.0)
        for device in range(1, 20):
            assert journal.device_id(f"device{device}") == device
    return journal, open_engine(journal, LAYOUT, config.parse(overrides=(*settings, *overrides)))


def gradient(seed: int, norm: float = 1.0) -> Vector:
    """An update of this norm."""
    vector = np.random.default_rng(seed).standard_normal(LAYOUT.size)
    return (norm * vector / np.linalg.norm(vector)).astype(np.float32)


def send(engine: Engine, device: int, sequence: int, delta: Vector) -> object:
    """Send an update from the present version. Return its receipt or refusal; None if it is held."""
    return commit(engine, [push(device, dense_update(sequence, engine.parameters.version, delta))])[0]
