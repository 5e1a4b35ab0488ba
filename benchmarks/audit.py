"""Holds a journal against what devices were told, and servers against an uninterrupted replica."""

import hashlib
import shutil
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.updates import LAYOUT, random_update
from edgeflock.server.descent import Parameters, Regime, Step
from edgeflock.server.engine.admission import admit
from edgeflock.server.journal import Journal
from edgeflock.server.ledger.recovery import recover, replay
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Update

REGIME = Regime("adacomp", 1e-3, window=256)


def initial_theta() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(LAYOUT.size).astype(np.float32) * np.float32(0.05)


def digest_of(theta: NDArray[np.float32]) -> str:
    return hashlib.sha256(theta.tobytes()).hexdigest()


class Audit:
    """What it found so far."""

    def __init__(self) -> None:
        self.replica = Parameters(0, initial_theta(), regime=REGIME, start=0)
        self.lost: set[tuple[str, int]] = set()
        self.doubled: set[tuple[str, int]] = set()
        self.unacknowledged = self.gaps = 0
        self.bit_identical = True

    def journal(self, path: Path, receipts: Mapping[tuple[str, int], int]) -> int:
        """Check the journal of an ended server; the newest version in it."""
        with closing(sqlite3.connect(path)) as db:
            rows = db.execute(
                "SELECT name, sequence, version FROM updates JOIN devices ON device = devices.id"
            ).fetchall()
        versions = {(name, sequence): version for name, sequence, version in rows}
        times = Counter((name, sequence) for name, sequence, _ in rows)
        self.lost |= {key for key, version in receipts.items() if versions.get(key) != version}
        self.doubled |= {key for key, count in times.items() if count > 1}
        self.unacknowledged = len(versions.keys() - receipts.keys())
        newest = max(versions.values(), default=0)
        self.gaps = max(self.gaps, newest - len({version for _, _, version in rows}))
        self._follow(path)
        return newest

    def same(self, version: int, digest: str) -> None:
        """Check somebody's parameters against the replica's."""
        self.bit_identical &= (version, digest) == (self.replica.version, digest_of(self.replica.theta))

    def restarts(self, path: Path) -> None:
        """Check what recover() and replay() make of the journal, in theta and in all that comes after."""
        with closing(Journal(path)) as journal:
            both = recover(journal, LAYOUT, REGIME), replay(journal, LAYOUT)
        for parameters in both:
            self.same(parameters.version, digest_of(parameters.theta))
        # Staleness is right if updates of every base weigh the same from here on.
        random, version = np.random.default_rng(1), self.replica.version
        for base in range(max(0, version - REGIME.window // 2), version):
            step = _step(replace(random_update(LAYOUT, 1, "f32", random), base=base), version)
            for parameters in (self.replica, *both):
                parameters.apply(step)
        for parameters in both:
            self.same(parameters.version, digest_of(parameters.theta))

    def _follow(self, path: Path) -> None:
        with closing(Journal(path)) as journal:
            for journaled in journal.updates(self.replica.version):
                update = wire.decode(journaled.frame)
                assert isinstance(update, Update), "the journal holds updates only"
                self.replica.apply(_step(update, journaled.version))


def _step(update: Update, version: int) -> Step:
    return admit(update, LAYOUT, oldest=0, version=version, samples=1 << 16, expansion_bytes=1 << 28)


def copy_journal(directory: Path, to: Path) -> Path:
    """A copy of an ended server's journal: opening it would spare the next server its own recovery."""
    for name in ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-mark"):
        (to / name).unlink(missing_ok=True)
        if (directory / name).exists():
            shutil.copy(directory / name, to / name)
    return to / "journal.sqlite"
