"""The journal: every acknowledged update, in order, in SQLite. What it holds survives `kill -9`.

    meta         the run: identity, model, layout
    devices      name <-> number, and the traffic of each at the last account
    updates      version it made, device, sequence number, facts, the Update record as received
    regimes      how updates count, from a version on
    snapshots    theta and its average at a version: the first, and the newest two
    evaluations  loss and accuracy of a version, and the traffic until then
    adjustments  the learning rates that operators chose while the run went on

(device, sequence) is unique for ever. Writes gather in one transaction until `commit`, which returns only
when they are on disk (WAL, synchronous = FULL). One caller at a time: see writer.py.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.server.log import Evaluation
from edgeflock.server.regime import Regime
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.layout import Layout

SCHEMA = 4

_TABLES = """
CREATE TABLE meta (run TEXT NOT NULL, model TEXT NOT NULL, layout BLOB NOT NULL, created REAL NOT NULL);
CREATE TABLE devices (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
    ingress INTEGER NOT NULL DEFAULT 0, egress INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE updates (
    version INTEGER PRIMARY KEY, device INTEGER NOT NULL REFERENCES devices, sequence INTEGER NOT NULL,
    time REAL NOT NULL, loss REAL, samples INTEGER NOT NULL, frame BLOB
);
CREATE TABLE regimes (
    version INTEGER NOT NULL, rule TEXT NOT NULL, learning_rate REAL NOT NULL, window INTEGER NOT NULL,
    average REAL NOT NULL, base_batch INTEGER NOT NULL, rounds INTEGER NOT NULL
);
CREATE TABLE snapshots (version INTEGER PRIMARY KEY, theta BLOB NOT NULL, average BLOB);
CREATE TABLE evaluations (
    version INTEGER NOT NULL, time REAL NOT NULL, loss REAL, accuracy REAL,
    ingress INTEGER NOT NULL, egress INTEGER NOT NULL
);
"""

_ADJUSTMENTS = """
CREATE TABLE IF NOT EXISTS adjustments (
    version INTEGER NOT NULL, configured REAL NOT NULL, chosen REAL NOT NULL
)
"""
"""Made when the first operator chooses one: most runs never need it."""


@dataclass(frozen=True, slots=True)
class Account:
    """A device, its accepted updates, and its traffic in bytes at the last account."""

    device: int
    name: str
    updates: int
    ingress: int
    egress: int


class Journal:
    """One run's journal file. Raises sqlite3.Error if the disk does."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """Open or set up the file. Without `durable` a commit does not wait for the disk."""
        self.path = path
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        # Pages of 16 KiB hold several updates, which saves a quarter of the time of a commit.
        synchronous = "FULL" if durable else "OFF"
        for pragma in ("page_size = 16384", "journal_mode = WAL", f"synchronous = {synchronous}"):
            self._db.execute(f"PRAGMA {pragma}")
        (schema,) = self._db.execute("PRAGMA user_version").fetchone()
        if schema not in (0, SCHEMA):
            raise ConfigError(f"{path} has journal schema {schema}; this version reads {SCHEMA}")
        self._updates: list[tuple[int, int, int, float, float, int, bytes]] = []

    # The run

    def begin_run(self, run: str, model: str, layout: Layout, theta: NDArray[np.float32], now: float) -> None:
        """Set up an empty journal with theta as version 0."""
        # One transaction: a journal is whole or was never begun.
        self._db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {SCHEMA};")
        self._write("INSERT INTO meta VALUES (?, ?, ?, ?)", run, model, msgpack.packb(layout.shapes()), now)
        self.add_snapshot(0, theta)
        self.commit()

    def run(self) -> tuple[str, str, Layout] | None:
        """(run, model, layout), or None if the journal is new."""
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()
        row = self._db.execute("SELECT run, model, layout FROM meta").fetchone() if tables else None
        return (row[0], row[1], Layout.of(msgpack.unpackb(row[2]))) if row else None

    # Writing

    def add_update(
        self, version: int, device: int, sequence: int, time: float, loss: float, samples: int, frame: bytes
    ) -> None:
        """Note one update for the next commit. Touches no disk."""
        self._updates.append((version, device, sequence, time, loss, samples, frame))

    def add_snapshot(
        self, version: int, theta: NDArray[np.float32], average: NDArray[np.float32] | None = None
    ) -> None:
        """Keep theta and its average; drop all snapshots but the first and the newest two."""
        blobs = (None if vector is None else vector.astype("<f4").tobytes() for vector in (theta, average))
        self._write("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", version, *blobs)
        self._write(
            "DELETE FROM snapshots WHERE version > 0 AND version NOT IN "
            "(SELECT version FROM snapshots ORDER BY version DESC LIMIT 2)"
        )

    def add_regime(self, version: int, regime: Regime) -> None:
        self._write("INSERT INTO regimes VALUES (?, ?, ?, ?, ?, ?, ?)", version, *astuple(regime))

    def add_adjustment(self, version: int, configured: float, chosen: float) -> None:
        """From `version` on the learning rate is `chosen`, while the settings say `configured`."""
        self._write(_ADJUSTMENTS)
        self._write("INSERT INTO adjustments VALUES (?, ?, ?)", version, configured, chosen)

    def forget_adjustments(self) -> None:
        """The settings have changed since, and hold."""
        self._write("DELETE FROM adjustments")

    def add_evaluation(self, evaluation: Evaluation) -> None:
        self._write("INSERT INTO evaluations VALUES (?, ?, ?, ?, ?, ?)", *astuple(evaluation))

    def forget_frames(self, before: int) -> None:
        """Drop the records, not the facts, of updates that made a version up to `before`."""
        self._write("UPDATE updates SET frame = NULL WHERE version <= ? AND frame IS NOT NULL", before)

    def add_account(self, device: int, ingress: int, egress: int) -> None:
        """A device's traffic until now, in bytes."""
        self._write("UPDATE devices SET ingress = ?, egress = ? WHERE id = ?", ingress, egress, device)

    def device_id(self, name: str) -> int:
        """The device's number, given on first sight."""
        row = self._db.execute("SELECT id FROM devices WHERE name = ?", (name,)).fetchone()
        if row is None:
            self._write("INSERT INTO devices (name) VALUES (?)", name)
            self.commit()
            return self.device_id(name)
        return int(row[0])

    def commit(self) -> None:
        """Return when everything written is on disk."""
        if self._updates:
            self._begin()
            self._db.executemany("INSERT INTO updates VALUES (?, ?, ?, ?, ?, ?, ?)", self._updates)
            self._updates.clear()
        if self._db.in_transaction:
            self._db.execute("COMMIT")

    def close(self) -> None:
        self.commit()
        self._db.close()

    def abandon(self) -> None:
        """Close without writing: what was not committed is rolled back."""
        self._db.close()

    def _write(self, statement: str, *values: object) -> None:
        self._begin()
        self._db.execute(statement, values)

    def _begin(self) -> None:
        # Asked, not remembered: on a full disk SQLite rolls back by itself.
        if not self._db.in_transaction:
            self._db.execute("BEGIN")

    # Reading

    def receipt(self, device: int, sequence: int) -> int | None:
        """The version that this update made, or None if it is not in the journal. Reads all of it.

        There is no index: it would scatter every commit over a page per device, for a question that only a
        device asks which resends an update older than its last.
        """
        for version, *of, _, _, _, _ in self._updates:
            if of == [device, sequence]:
                return version
        row = self._db.execute(
            "SELECT version FROM updates WHERE device = ? AND sequence = ?", (device, sequence)
        ).fetchone()
        return int(row[0]) if row else None

    def frames(self) -> dict[tuple[int, int], tuple[int, float]]:
        """(device, sequence) -> (version made, time), of every update whose record is still there."""
        rows = self._db.execute("SELECT device, sequence, version, time FROM updates WHERE length(frame) > 0")
        return {(device, sequence): (version, time) for device, sequence, version, time in rows}

    def last_receipts(self) -> dict[int, tuple[int, int]]:
        """device -> (its highest journaled sequence number, the version that update made)."""
        # SQLite takes the bare column from the row of the maximum.
        rows = self._db.execute("SELECT device, max(sequence), version FROM updates GROUP BY device")
        return {device: (sequence, version) for device, sequence, version in rows}

    def snapshot(self, *, first: bool = False) -> tuple[int, NDArray[np.float32], NDArray[np.float32] | None]:
        """(version, theta, average) of the newest snapshot, or of version 0."""
        order = "ASC" if first else "DESC"
        version, *blobs = self._db.execute(
            f"SELECT version, theta, average FROM snapshots ORDER BY version {order} LIMIT 1"
        ).fetchone()
        theta, average = (None if b is None else np.frombuffer(b, "<f4").astype(np.float32) for b in blobs)
        assert theta is not None, "the table says so"
        return version, theta, average

    def updates(self, after: int, until: int | None = None) -> Iterator[tuple[int, bytes]]:
        """(version made, Update record) for the versions after `after`, up to and with `until`, in order."""
        rows = self._db.execute(
            "SELECT version, frame FROM updates WHERE version > ? AND version <= ? ORDER BY version",
            (after, (1 << 62) if until is None else until),
        )
        for version, frame in rows:
            if frame is None:
                raise ConfigError(f"{self.path}: update {version} was dropped (run.keep_updates = false)")
            yield version, frame

    def first_kept(self) -> int | None:
        """The oldest version whose update record is still there."""
        row = self._db.execute(
            "SELECT version FROM updates WHERE frame IS NOT NULL ORDER BY version LIMIT 1"
        ).fetchone()
        return int(row[0]) if row else None

    def regimes(self) -> list[tuple[int, Regime]]:
        """[(from version, regime), ...] in order."""
        rows = self._db.execute("SELECT * FROM regimes ORDER BY rowid")
        return [(version, Regime(*rest)) for version, *rest in rows]

    def adjustment(self) -> tuple[float, float] | None:
        """(what the settings said then, the learning rate that was chosen last)."""
        (tables,) = self._db.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'adjustments'"
        ).fetchone()
        if not tables:
            return None
        row = self._db.execute(
            "SELECT configured, chosen FROM adjustments ORDER BY rowid DESC LIMIT 1"
        ).fetchone()
        return (float(row[0]), float(row[1])) if row else None

    def accounts(self) -> list[Account]:
        """What is known of every device."""
        rows = self._db.execute(
            "SELECT id, name, coalesce(updates, 0), ingress, egress FROM devices LEFT JOIN "
            "(SELECT device, count(*) AS updates FROM updates GROUP BY device) ON device = id"
        )
        return [Account(*row) for row in rows]

    def evaluations(self) -> list[Evaluation]:
        rows = self._db.execute("SELECT * FROM evaluations ORDER BY rowid")
        return [Evaluation(*row) for row in rows]
