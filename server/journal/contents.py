"""Reads a journal, and checks the checksum of a row before it returns it."""

import json
from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.server.database import Database, columns
from edgeflock.server.defence import DefenceDecision
from edgeflock.server.journal.records import (
    SUM_DEVICE,
    Adjustment,
    DeviceTotals,
    JournaledUpdate,
    LastReceipt,
    ModelSnapshot,
    RegimeStart,
    RunRecord,
    evaluation_from_row,
)
from edgeflock.server.journal.stores.chain import COVERED, missing_update, vector_sum, walk
from edgeflock.server.journal.stores.examination import Examination
from edgeflock.server.journal.stores.schema import TABLES
from edgeflock.shared.errors import ConfigError, JournalDamaged, Malformed
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.protocol.frames import Evaluation


class Contents:
    """The part of a journal (journal.py) that reads."""

    def __init__(self, database: Database, found: Examination) -> None:
        """`found` is the examination of the open database. Raises JournalDamaged if there is damage."""
        self.path = database.path
        if found.damage:
            raise JournalDamaged(f"{self.path}: {found.damage[0]}")
        self.db = database
        self._heads, self._chains = found.heads, found.chains
        self._updates: list[tuple[Any, ...]] = []
        """The rows that wait for the next commit."""

    @property
    def version(self) -> int:
        """The version of the last update, committed or not; 0 if there is none."""
        return self._heads["updates"].row

    def run(self) -> RunRecord | None:
        """The run of this journal, or None if it is new."""
        if not self._heads:
            return None
        return decode_run(self.path, *self._row("SELECT run, model, layout, start, data FROM meta", "run"))

    def receipt(self, device: int, sequence: int) -> int | None:
        """The version that this update made, or None if it is not in the journal. It scans all updates.

        There is no index, since it would spread every commit over a page per device. Only a device that
        resends an update older than its last one needs this.
        """
        for version, *row in self._updates:
            if row[:2] == [device, sequence]:
                return int(version)
        rows = self.db.rows("SELECT version FROM updates WHERE device = ? AND sequence = ?", device, sequence)
        return next((int(version) for (version,) in rows), None)

    def last_receipts(self) -> dict[int, LastReceipt]:
        """Map each device to the receipt of its latest update."""
        rows = self.db.rows(
            "SELECT device, sequence, version FROM updates JOIN (SELECT device AS whose, max(sequence) AS "
            "latest FROM updates GROUP BY device) AS last ON device = whose AND sequence = latest"
        )
        return {device: LastReceipt(sequence, version) for device, sequence, version in rows}

    def snapshot(self, *, first: bool = False, until: int = 1 << 62) -> ModelSnapshot:
        """The newest snapshot up to a version, or that of version 0.

        Raises JournalDamaged if its checksum does not match.
        """
        order = "ASC" if first else "DESC"
        version, theta, average, memory, record, chain = self._row(
            "SELECT version, theta, average, memory, sum, chain FROM snapshots WHERE version <= ? "
            f"ORDER BY version {order} LIMIT 1",
            "snapshot",
            until,
        )
        if first and version:
            raise JournalDamaged(f"{self.path} is damaged: it holds no snapshot of version 0")
        if vector_sum(version, chain, theta, average, memory) != record or chain != self._chain(version):
            raise JournalDamaged(
                f"{self.path}: the snapshot of version {version} has a wrong checksum, or is of another run"
            )
        # The compiled code that gets it does not check its size.
        run = self.run()
        needed = 4 * run.layout.size if run else 0
        for octets in (theta, average):
            if octets is not None and len(octets) != needed:
                raise JournalDamaged(
                    f"{self.path}: the snapshot of version {version} holds {len(octets)} bytes, "
                    f"the model {needed}"
                )
        return ModelSnapshot(version, _vector(theta), None if average is None else _vector(average), memory)

    def updates(self, after: int, until: int | None = None) -> Iterator[JournaledUpdate]:
        """The updates that made the versions after `after`, up to and including `until`, in order.

        Raises JournalDamaged at an update that is missing or whose checksum does not match, ConfigError if
        its record was dropped.
        """
        rows = self.db.stream(
            f"SELECT {COVERED['updates']}, chain, frame FROM updates "
            "WHERE version > ? AND version <= ? ORDER BY version",
            after,
            (1 << 62) if until is None else until,
        )
        version = after
        for facts, frame in walk(rows, self._chain(after), self._chains, after, self.path):
            version = facts[0]
            if frame is None or (not frame and facts[1]):  # emulated fleets journal facts alone
                raise ConfigError(f"{self.path}: update {version} was dropped (journal.keep_updates = false)")
            yield JournaledUpdate(version, frame, facts[3], facts[6])
        if until is not None and version < until:
            raise missing_update(self.path, version + 1)

    def defence_decisions(self) -> Iterator[DefenceDecision]:
        """The defence decisions on devices' updates, in order."""
        rows = self.db.stream(f"SELECT {COVERED['updates']}, chain, NULL FROM updates ORDER BY version")
        for (version, device, *_, share, judged, _), _ in walk(
            rows, self._chain(0), self._chains, 0, self.path
        ):
            if device:
                yield DefenceDecision(version, device, share, judged)

    def _chain(self, version: int) -> int:
        """The chain after the update of that version. Raises JournalDamaged if it is missing."""
        if version == 0:
            return self._heads["meta"].chain
        for (chain,) in self.db.rows("SELECT chain FROM updates WHERE version = ?", version):
            return int(chain)
        raise missing_update(self.path, version)

    def first_stored(self) -> int | None:
        """The oldest version whose update record is still in the journal."""
        rows = self.db.rows("SELECT version FROM updates WHERE frame IS NOT NULL ORDER BY version LIMIT 1")
        return next((int(version) for (version,) in rows), None)

    def regimes(self) -> list[RegimeStart]:
        """The regimes under which updates counted, in order."""
        rows = self.db.rows(f"SELECT {COVERED['regimes']} FROM regimes ORDER BY rowid")
        try:
            return [RegimeStart.from_row(row) for row in rows]
        except ConfigError as error:
            raise JournalDamaged(f"{self.path}: {error}") from error

    def last_rollback(self) -> int:
        """The version that the last rollback made; 0 if there was none."""
        return max((turn.version for turn in self.regimes() if turn.rollback_target is not None), default=0)

    def first_update_time(self) -> float | None:
        """When a device's first update came; None if none has come."""
        first = "SELECT time FROM updates WHERE device > 0 ORDER BY version LIMIT 1"
        return next((float(time) for (time,) in self.db.rows(first)), None)

    def update_origin(self, version: int) -> tuple[str, int]:
        """(The name of the device whose update made a version, its sequence number)."""
        name, sequence = self._row(
            "SELECT name, sequence FROM updates JOIN devices ON id = device WHERE version = ?",
            f"device that made version {version}",
            version,
        )
        return str(name), int(sequence)

    def adjustment(self) -> Adjustment | None:
        """The learning rate that an operator chose last, if it still holds."""
        rows = self.db.rows("SELECT configured, chosen, version FROM adjustments ORDER BY rowid DESC LIMIT 1")
        return next((Adjustment(*row) for row in rows), None)

    def accounts(self) -> list[DeviceTotals]:
        """The number, name, updates and traffic of every device."""
        rows = self.db.rows(
            "SELECT id, name, coalesce(updates, 0), ingress, egress FROM devices LEFT JOIN "
            "(SELECT device, count(*) AS updates FROM updates GROUP BY device) AS made ON device = id"
        )
        accounts = [DeviceTotals(*row) for row in rows]
        for account in accounts:
            if not (isinstance(account.ingress, int) and isinstance(account.egress, int)):
                raise JournalDamaged(f"{self.path}: the traffic of device {account.name!r} is no number")
        return accounts

    def update_devices(self) -> Iterator[tuple[int, bytes | None]]:
        """(The device that made an update, of a secure sum what the journal has of its devices), in order."""
        yield from self.db.rows(
            "SELECT device, CASE WHEN name = ? THEN judged END FROM updates JOIN devices ON id = device "
            "ORDER BY version", SUM_DEVICE,
        )  # fmt: skip

    def evaluations(self) -> list[Evaluation]:
        rows = self.db.rows(f"SELECT {COVERED['evaluations']} FROM evaluations ORDER BY rowid")
        return [evaluation_from_row(row) for row in rows]

    def table(self, name: str) -> Iterator[tuple[Any, ...]]:
        """All rows of a table, in order. They begin with the row number where SQLite assigns it."""
        return self.db.stream(f"SELECT {', '.join(columns(TABLES[name]))} FROM {name} ORDER BY 1")

    def _row(self, statement: str, name: str, *values: object) -> tuple[Any, ...]:
        """The first row of a query that has one in every journal. Raises JournalDamaged without one."""
        row = self.db.row(statement, *values)
        if row is None:
            raise JournalDamaged(f"{self.path} is damaged: it holds no {name}")
        return row


def decode_run(
    path: object, run: str, model: str, shapes: bytes, first_model: bytes | None, data: str = ""
) -> RunRecord:
    """Decode a row of meta. Raises JournalDamaged if it is invalid."""
    try:
        layout = Layout.from_shapes(msgpack.unpackb(shapes))
        start = None if first_model is None else Start.from_msgpack(msgpack.unpackb(first_model))
        return RunRecord(
            run, model, layout, start, Description.from_msgpack(json.loads(data)) if data else None
        )
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, ConfigError, Malformed) as error:
        raise JournalDamaged(f"{path}: its layout, start or data cannot be decoded: {error}") from error


def _vector(octets: bytes) -> NDArray[np.float32]:
    return np.frombuffer(octets, "<f4").astype(np.float32)
