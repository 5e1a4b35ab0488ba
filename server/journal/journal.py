"""The journal: every acknowledged update, in order. Its content survives `kill -9`.

    meta         the run: identity, model, layout, how its first model is made, what its samples are
    devices      name <-> number, and each device's traffic at the last account
    updates      version it made, device, sequence number, facts, the Update record as received, the share
                 of it that counts, and why
    regimes      how updates count from a version on, and why: settings, or an operator
    snapshots    theta, its average and the optimizer's memory, at a version: the first, the newest two
    evaluations  loss and accuracy of a version, and the traffic until then
    adjustments  the learning rates that operators chose during the run; the last one holds
    repairs      the versions that a repair dropped, and the run's name before it

(device, sequence) is unique. Writes gather in one transaction until `commit`, which returns only when they
are durable: in a SQLite file, or in a PostgreSQL database (stores). Calls must not overlap: see
sessions/writer.py. Rows carry checksums (stores/chain.py).
"""

import json
import math
from itertools import islice
from pathlib import Path

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Regime
from edgeflock.server.journal.contents import Contents
from edgeflock.server.journal.records import RegimeStart, evaluation_row, rollback_kind
from edgeflock.server.journal.stores.chain import (
    COVERED,
    frame_sum,
    key_of,
    row_sum,
    update_sum,
    vector_sum,
)
from edgeflock.server.journal.stores.mark import Head
from edgeflock.server.journal.stores.postgres import PostgresStore
from edgeflock.server.journal.stores.schema import SCHEMA, TABLES
from edgeflock.server.journal.stores.sqlite import SqliteStore
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.protocol.frames import Evaluation

_BATCH = 64
"""Updates that are copied at a time."""

SERVER = 0
"""The number of the server itself, which makes a version at a rollback. Devices count from 1."""


class Journal(Contents):
    """The journal of one run.

    Methods raise OSError or sqlite3.Error if the store fails, JournalDamaged if a checksum does not match.
    """

    def __init__(self, place: Path | SqliteStore | PostgresStore, *, durable: bool = True) -> None:
        """Open or set up the file at a path, or use a store that is open.

        Without `durable` a commit does not wait for the disk. Raises JournalTooNew if a newer version of
        the software wrote the file.
        """
        store = SqliteStore(place, durable=durable) if isinstance(place, Path) else place
        try:
            super().__init__(store, store.examination)
        except BaseException:
            if isinstance(place, Path):
                store.close()
            raise

    # The run

    def begin_run(
        self,
        run: str,
        model: str,
        layout: Layout,
        theta: NDArray[np.float32],
        now: float,
        start: Start | None = None,
        data: Description | None = None,
    ) -> None:
        """Set up an empty journal with theta as version 0.

        `start` says how devices make theta, if they do. `data` describes the run's samples for good.
        """
        # In one transaction: a journal is set up completely, or not at all.
        self.db.create(TABLES, SCHEMA)
        begin = None if start is None else msgpack.packb(start)
        shapes = msgpack.packb(layout.shapes())
        samples = "" if data is None else json.dumps(data.fields)
        self._insert("meta", COVERED["meta"], run, model, shapes, now, begin, samples)
        genesis = row_sum(0, self._row(f"SELECT {COVERED['meta']} FROM meta", "run"))
        self.db.write("UPDATE meta SET chain = ?", genesis)
        self._heads |= {table: Head(int(table == "meta"), genesis) for table in COVERED}
        self.add_snapshot(0, theta)
        self.commit()

    def copy_from(self, other: "Journal") -> None:
        """Copy the rows of another journal, which nobody writes, into this empty one in one transaction."""
        self.db.create(TABLES, SCHEMA)
        for table, declared in TABLES.items():
            rows = other.table(table)
            while group := list(islice(rows, _BATCH if table == "updates" else 1)):
                self.db.insert(table, declared, group)
        self._heads |= other._heads
        self._chains |= other._chains
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
        judged: bytes | None = None,
    ) -> None:
        """Add one update to the next commit. It does not touch the disk."""
        columns, record = (version, device, sequence, time, loss, samples), frame_sum(frame)
        head = self._heads["updates"]
        chain = update_sum(self._chains.get(head.row, head.chain), (*columns, share, judged, record))
        self._heads["updates"] = Head(version, chain)
        self._updates.append((*columns, frame, record, chain, share, judged))

    def add_snapshot(
        self,
        version: int,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None = None,
        memory: bytes | None = None,
    ) -> None:
        """Store theta, its average and its memory. Keep only the first and the newest two snapshots."""
        octets = theta.astype("<f4").tobytes()
        more = None if average is None else average.astype("<f4").tobytes()
        chain = self._heads["updates"].chain
        record = vector_sum(version, chain, octets, more, memory)
        self.db.write(
            "INSERT INTO snapshots (version, theta, average, sum, chain, memory) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (version) DO UPDATE SET theta = excluded.theta, average = excluded.average, "
            "sum = excluded.sum, chain = excluded.chain, memory = excluded.memory",
            version, octets, more, record, chain, memory,
        )  # fmt: skip
        self.db.write(
            "DELETE FROM snapshots WHERE version > 0 AND version NOT IN "
            "(SELECT version FROM snapshots ORDER BY version DESC LIMIT 2)"
        )

    def add_rollback(
        self,
        version: int,
        target: int,
        regime: Regime,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None,
        memory: bytes | None,
        now: float,
    ) -> None:
        """Make `version`, the next one, the model of version `target` again."""
        self.add_update(version, SERVER, version, now, math.nan, 0, b"")
        self.add_snapshot(version, theta, average, memory)
        self.add_regime(version, regime, rollback_kind(target))

    def add_regime(self, version: int, regime: Regime, kind: str = "settings") -> None:
        """Begin a regime at `version`, the current one. `kind` says why."""
        before = self._chains.get(version, self._heads["updates"].chain)
        self._chains[version] = self._append("regimes", before, *RegimeStart(version, regime, kind).row())

    def add_adjustment(self, version: int, configured: float, chosen: float) -> None:
        """Record that from `version` on the learning rate is `chosen`, with `configured` in the settings."""
        self._append("adjustments", None, version, configured, chosen)

    def add_evaluation(self, evaluation: Evaluation) -> None:
        self._append("evaluations", None, *evaluation_row(evaluation))

    def add_repair(self, version: int, last_dropped: int, run: str, now: float) -> None:
        """Record a repair of the run `run`: the versions after `version` up to `last_dropped` are lost."""
        self._append("repairs", None, version, last_dropped, run, now)

    def drop_frames(self, version: int) -> None:
        """Drop the records, but not the facts, of updates that made the versions up to `version`."""
        self.db.write("UPDATE updates SET frame = NULL WHERE version <= ? AND frame IS NOT NULL", version)

    def add_account(self, device: int, ingress: int, egress: int) -> None:
        """Record a device's traffic until now, in bytes."""
        self.db.write("UPDATE devices SET ingress = ?, egress = ? WHERE id = ?", ingress, egress, device)

    def device_id(self, name: str) -> int:
        """The device's number. A new device gets one."""
        row = next(self.db.rows("SELECT id FROM devices WHERE name = ?", name), None)
        if row is None:
            self._append("devices", None, self._heads["devices"].row + 1, name)
            self.commit()
            return self.device_id(name)
        return int(row[0])

    def commit(self) -> None:
        """Make all writes durable, then return."""
        if self._updates:
            self.db.insert("updates", TABLES["updates"], self._updates)
            self._updates.clear()
        self.db.commit()

    def close(self) -> None:
        self.commit()
        self.abandon()

    def abandon(self) -> None:
        """Close without writing. Uncommitted writes are rolled back."""
        self.db.close()

    def _append(self, table: str, previous_chain: int | None, *values: object) -> int:
        """Append a row to a table that only grows, linked to the row before it. Returns the chain."""
        names, head, key = COVERED[table], self._heads[table], key_of(table)
        number = head.row + 1
        if key in names:
            self._insert(table, names, *values)
        else:
            self._insert(table, f"{key}, {names}", number, *values)
        # Read the row back as stored: a database turns integers in REAL columns into real numbers.
        row = self._row(f"SELECT {COVERED[table]} FROM {table} WHERE {key} = {number}", table)
        chain = row_sum(head.chain if previous_chain is None else previous_chain, row)
        self.db.write(f"UPDATE {table} SET chain = ? WHERE {key} = ?", chain, number)
        self._heads[table] = Head(number, chain)
        return chain

    def _insert(self, table: str, names: str, *values: object) -> None:
        places = ", ".join("?" * len(values))
        self.db.write(f"INSERT INTO {table} ({names}) VALUES ({places})", *values)
