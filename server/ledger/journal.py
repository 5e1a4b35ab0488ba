"""The journal: every acknowledged update, in order, in SQLite. What it holds survives `kill -9`.

    meta         the run: identity, model, layout, how its first model is made
    devices      name <-> number, and the traffic of each at the last account
    updates      version it made, device, sequence number, facts, the Update record as received, and what
                 part of it counts
    regimes      how updates count, from a version on, and why: settings, or an operator
    snapshots    theta, its average and what the optimizer remembers, at a version: the first, the newest two
    evaluations  loss and accuracy of a version, and the traffic until then
    adjustments  the learning rates that operators chose while the run went on; the last one holds
    repairs      what was given up to mend it, and which run it was until then

(device, sequence) is unique for ever. Writes gather in one transaction until `commit`, which returns only
when they are on disk (WAL, synchronous = FULL). One caller at a time: see sessions/writer.py.

Rows carry checksums (chain.py), and how far they go is noted in a file beside the journal (mark.py).
"""

import logging
import math
import os
import sqlite3
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Regime
from edgeflock.server.ledger import mark
from edgeflock.server.ledger.chain import (
    COVERED,
    Facts,
    of_frame,
    of_row,
    of_update,
    of_vectors,
)
from edgeflock.server.ledger.contents import Contents
from edgeflock.server.ledger.examination import Examined, examine, raise_if_damaged, reading, set_up
from edgeflock.server.ledger.migrations import SCHEMA, TABLES, migrate, schema_of
from edgeflock.server.ledger.records import RegimeStart, rolled_back
from edgeflock.shared.errors import JournalDamaged
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.protocol.frames import Evaluation

log = logging.getLogger(__name__)

SERVER = 0
"""Stands for the server itself, which makes a version when the model is rolled back; devices count from 1."""


class Journal(Contents):
    """One run's journal file.

    Raises sqlite3.Error if the disk does, JournalDamaged if the file is not as it was written.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """Open or set up the file, and migrate it if an older version wrote it.

        Without `durable` a commit does not wait for the disk. Raises JournalTooNew if a newer version wrote
        the file.
        """
        self.path = path
        self._updates: list[tuple[Any, ...]] = []
        self._durable = durable
        self._mark: mark.Mark | None = None
        self._heads: mark.Heads = {}
        self._turns: dict[int, int] = {}
        if self._on_disk:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite's other files follow its mode
            self._check()
            _keep_private(path)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        # Pages of 16 KiB hold several updates, which saves a quarter of the time of a commit.
        synchronous = "FULL" if durable else "OFF"
        try:
            set_up(self._db)
            schema_of(self._db, path)  # before anything is written to a file that is none of ours
            for pragma in ("page_size = 16384", "journal_mode = WAL", f"synchronous = {synchronous}"):
                self._db.execute(f"PRAGMA {pragma}")
            migrate(self._db, path, last=self._migrated)
            if self._heads and self._mark is None:
                self._open_mark()
        except BaseException as error:
            self._db.close()
            if isinstance(error, sqlite3.Error):
                raise_if_damaged(path, error)
            raise

    @property
    def _on_disk(self) -> bool:
        return str(self.path) != ":memory:"

    def _check(self) -> None:
        """Read what is small of a journal, without touching it. Raises JournalDamaged."""
        noted = mark.read(self.path)
        known = noted is not None and noted["updates"].row
        try:
            with reading(self.path) as db:
                schema = schema_of(db, self.path)
                if schema == SCHEMA:
                    found = examine(db, self.path, noted)
                elif schema or not known:
                    return
        except sqlite3.Error as error:
            raise_if_damaged(self.path, error)
            raise
        if not schema:
            raise JournalDamaged(f"{self.path}: it holds no run, and version {known} was acknowledged")
        if found.damage:
            raise JournalDamaged(f"{self.path}: {found.damage[0]}")
        self._take(found)

    def _take(self, found: Examined) -> None:
        self._heads, self._turns = found.heads, found.turns

    def _migrated(self) -> None:
        self._take(examine(self._db, self.path, None))
        self._open_mark()

    def _open_mark(self) -> None:
        """Before the commit that the journal needs it for."""
        if self._on_disk:
            self._mark = mark.Mark(self.path, durable=self._durable)
            self._mark.note(self._heads, flush=True)

    # The run

    def begin_run(
        self,
        run: str,
        model: str,
        layout: Layout,
        theta: NDArray[np.float32],
        now: float,
        start: Start | None = None,
    ) -> None:
        """Set up an empty journal with theta as version 0, which `start` makes, too, if there is one."""
        # One transaction: a journal is whole or was never begun.
        self._db.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {SCHEMA};")
        made = None if start is None else msgpack.packb(start)
        shapes = msgpack.packb(layout.shapes())
        columns = COVERED["meta"]
        self._write(f"INSERT INTO meta ({columns}) VALUES (?, ?, ?, ?, ?)", run, model, shapes, now, made)
        genesis = of_row(0, self._one(f"SELECT {columns} FROM meta", "run"))
        self._write("UPDATE meta SET chain = ?", genesis)
        self._heads = {table: mark.Head(int(table == "meta"), genesis) for table in COVERED}
        self.add_snapshot(0, theta)
        self._open_mark()
        self.commit()

    # Writing

    def add_update(
        self,
        version: int,
        device: int,
        sequence: int,
        time: float,
        loss: float,
        samples: int,
        frame: bytes,
        share: float = 1.0,
    ) -> None:
        """Note one update for the next commit. Touches no disk."""
        self.add_kept((version, device, sequence, time, loss, samples, share, of_frame(frame)), frame)

    def add_kept(self, facts: Facts, frame: bytes | None) -> None:
        """The same for one of another journal, whose record may have been dropped."""
        head = self._heads["updates"]
        chain = of_update(self._turns.get(head.row, head.chain), facts)
        self._heads["updates"] = mark.Head(facts[0], chain)
        *told, share, record = facts
        self._updates.append((*told, frame, record, chain, share))

    def add_snapshot(
        self,
        version: int,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None = None,
        memory: bytes | None = None,
    ) -> None:
        """Keep theta, its average and what the optimizer remembers; drop all snapshots but the first and the
        newest two.
        """
        octets = theta.astype("<f4").tobytes()
        more = None if average is None else average.astype("<f4").tobytes()
        chain = self._heads["updates"].chain
        record = of_vectors(version, chain, octets, more, memory)
        self._write(
            "INSERT OR REPLACE INTO snapshots (version, theta, average, sum, chain, memory) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            version, octets, more, record, chain, memory,
        )  # fmt: skip
        self._write(
            "DELETE FROM snapshots WHERE version > 0 AND version NOT IN "
            "(SELECT version FROM snapshots ORDER BY version DESC LIMIT 2)"
        )

    def add_rollback(
        self,
        version: int,
        to: int,
        regime: Regime,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None,
        memory: bytes | None,
        now: float,
    ) -> None:
        """`version`, the next one, is the model of version `to` again."""
        self.add_update(version, SERVER, version, now, math.nan, 0, b"")
        self.add_snapshot(version, theta, average, memory)
        self.add_regime(version, regime, rolled_back(to))

    def add_regime(self, version: int, regime: Regime, kind: str = "settings") -> None:
        """From `version`, the current one, on; `kind` says why."""
        before = self._turns.get(version, self._heads["updates"].chain)
        self._turns[version] = self._append("regimes", before, *RegimeStart(version, regime, kind).row())

    def add_adjustment(self, version: int, configured: float, chosen: float) -> None:
        """From `version` on the learning rate is `chosen`, while the settings say `configured`."""
        self._append("adjustments", None, version, configured, chosen)

    def add_evaluation(self, evaluation: Evaluation) -> None:
        self._append("evaluations", None, *evaluation[:6])

    def add_repair(self, version: int, given_up: int, run: str, now: float) -> None:
        """Of what was the run `run` until now, the versions after `version` up to `given_up` are lost."""
        self._append("repairs", None, version, given_up, run, now)

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
            self._append("devices", None, self._heads["devices"].row + 1, name)
            self.commit()
            return self.device_id(name)
        return int(row[0])

    def commit(self) -> None:
        """Return when everything written is on disk."""
        if self._updates:
            self._begin()
            places = ", ".join("?" * len(self._updates[0]))
            self._db.executemany(f"INSERT INTO updates VALUES ({places})", self._updates)
            self._updates.clear()
        if self._db.in_transaction:
            self._db.execute("COMMIT")
            if self._mark is not None:
                self._mark.note(self._heads)

    def close(self) -> None:
        self.commit()
        self.abandon()

    def abandon(self) -> None:
        """Close without writing: what was not committed is rolled back."""
        self._db.close()
        if self._mark is not None:
            self._mark.close()
            self._mark = None

    def _append(self, table: str, before: int | None, *values: object) -> int:
        """Add a row to one of the tables that only grow, linked to the one before it. Returns the chain."""
        columns, head = COVERED[table], self._heads[table]
        number = head.row + 1
        places = ", ".join("?" * len(values))
        self._write(f"INSERT INTO {table} ({columns}) VALUES ({places})", *values)
        # As SQLite keeps it: it knows no NaN, and of integers in columns of REAL it makes real numbers.
        row = self._one(f"SELECT {columns} FROM {table} WHERE rowid = {number}", table)
        chain = of_row(head.chain if before is None else before, row)
        self._write(f"UPDATE {table} SET chain = ? WHERE rowid = ?", chain, number)
        self._heads[table] = mark.Head(number, chain)
        return chain

    def _write(self, statement: str, *values: object) -> None:
        self._begin()
        self._db.execute(statement, values)

    def _begin(self) -> None:
        # Asked, not remembered: on a full disk SQLite rolls back by itself.
        if not self._db.in_transaction:
            self._db.execute("BEGIN")


def _keep_private(path: Path) -> None:
    """Owner only, whatever the umask was once: a journal tells of everybody's updates."""
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-mark")]
    opened = [file for file in files if file.exists() and file.stat().st_mode & 0o077]
    for file in opened:
        file.chmod(0o600)
    if opened:
        log.warning("%s could be read by others: it is its owner's alone now", path)
