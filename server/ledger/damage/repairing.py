"""Rebuild a journal from the whole part of another one, up to a version. The rest is dropped.

The result is another run, since it will make versions again that devices hold already, with other content.
Devices start from its model when they join (`RunReplaced`), and lose only the updates that were
dropped.
"""

import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.database import SUFFIXES, Database, SqliteDatabase
from edgeflock.server.ledger.claim import lock
from edgeflock.server.ledger.contents import decode_run
from edgeflock.server.ledger.damage.verifying import VerifyReport, check
from edgeflock.server.ledger.journal import Journal
from edgeflock.server.ledger.records import RegimeStart, evaluation_from_row
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.ledger.stores import mark
from edgeflock.server.ledger.stores.chain import COVERED
from edgeflock.server.ledger.stores.examination import Examination, compare, examine
from edgeflock.server.ledger.stores.migrations import SCHEMA, schema_of
from edgeflock.shared.errors import ConfigError, JournalDamaged

_AT_ONCE = 1000
"""Updates per transaction."""


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of a repair."""

    run: str
    """The run's new name."""
    before: str
    version: int
    given_up: int
    """The last version of the old journal; `version` if nothing was lost."""
    updates: int
    """How many of the lost updates the old journal still holds."""
    devices: int
    """How many devices made them."""
    backup: Path
    """The old journal. Its other files are in the same directory."""


def repair(path: Path, version: int, now: float) -> RepairReport:
    """Keep the versions of the journal at `path` up to `version`, and the old journal under another name.

    Raises ConfigError if a server hosts it or it is not whole up to that version, JournalDamaged if no part
    of it can be read.
    """
    if not path.exists():
        raise ConfigError(f"{path}: there is no such file; name the journal.sqlite of a run")
    with lock(path.parent, "the folder of PATH"):
        fresh, backup = path.with_name(path.name + ".repaired"), _backup(path)
        _remove(fresh)
        marked = mark.read(path)
        with closing(SqliteDatabase(path, read_only=True)) as db:
            if schema_of(db) != SCHEMA:
                raise ConfigError(f"{path} holds no run of schema {SCHEMA}, so nothing can be repaired")
            found = examine(db)
            compare(db, found, marked)
            report = check(db, marked, found)
            _check_version(path, report, version)
            run = _copy(db, found, report, version, fresh, now)
            lost = "SELECT count(*), count(DISTINCT device) FROM updates WHERE version > ? AND device > 0"
            updates, devices = db.row(lost, version) or (0, 0)
        for suffix in SUFFIXES:
            if (old := path.with_name(path.name + suffix)).exists():
                old.rename(backup.with_name(backup.name + suffix))
        # The mark moves first: a mark without its journal is refused, and so is a journal without its mark.
        for suffix in reversed(SUFFIXES):
            if (new := fresh.with_name(fresh.name + suffix)).exists():
                new.rename(path.with_name(path.name + suffix))
    last_dropped = max(report.acknowledged, report.version)
    return RepairReport(run, report.run, version, last_dropped, updates, devices, backup)


def _backup(path: Path) -> Path:
    """A backup name that is free."""
    number = 1
    while (backup := path.with_name(f"{path.name}.before-repair-{number}")).exists():
        number += 1
    return backup


def _remove(path: Path) -> None:
    for suffix in SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _check_version(path: Path, report: VerifyReport, version: int) -> None:
    """Raises ConfigError if the model of version `version` cannot be rebuilt."""
    if not 0 <= version <= report.whole:
        raise ConfigError(
            f"--to {version}: {path} is intact from version 0 to {report.whole}; choose one of these"
        )
    since = max((one for one in report.snapshots if one <= version), default=-1)
    if 0 not in report.snapshots or since < min(report.dropped, version):
        possible = max(report.snapshots) if 0 in report.snapshots else None
        raise ConfigError(
            f"--to {version}: {path} has no intact snapshot from which its updates lead there; "
            + ("restore a copy of it" if possible is None else f"use --to {possible}")
        )


def _copy(
    db: Database, found: Examination, report: VerifyReport, version: int, fresh: Path, now: float
) -> str:
    """Write the kept rows to the journal `fresh`; return the name of its run."""
    created, run, *rest = db.row("SELECT created, run, model, layout, start, data FROM meta") or ()
    if found.unsound.get("meta"):
        raise JournalDamaged("the run, model and layout of the journal are damaged: restore a copy of it")
    old = decode_run(fresh, run, *rest)
    name = secrets.token_hex(8)
    journal = Journal(fresh)
    try:
        journal.begin_run(name, old.model, old.layout, _snapshot(db, 0)[0], created, old.start, old.data)
        for device in _names(db, found, version):
            journal.device_id(device)
        _copy_versions(db, journal, report, version)
        for row in _rows(db, found, "evaluations", version):
            journal.add_evaluation(evaluation_from_row(row))
        for row in _rows(db, found, "adjustments", version):
            journal.add_adjustment(*row)
        for row in _rows(db, found, "repairs", version):
            journal.add_repair(*row)
        for account in db.rows("SELECT id, ingress, egress FROM devices"):
            journal.add_account(*account)
        journal.add_repair(version, max(report.acknowledged, report.version), run, now)
        journal.commit()
        parameters = replay(journal, old.layout, newest=True)
        journal.add_snapshot(version, parameters.theta, parameters.average, parameters.packed_memory())
    except BaseException:
        journal.abandon()
        raise
    journal.close()
    return name


def _names(db: Database, found: Examination, version: int) -> Iterator[str]:
    """The devices' names in the order of their numbers. A lost name is replaced: updates refer to numbers."""
    names: dict[int, str] = dict(db.rows("SELECT id, name FROM devices"))
    (last,) = db.row("SELECT max(device) FROM updates WHERE version <= ?", version) or (0,)
    for number in range(1, max(last or 0, *names, 0) + 1):
        lost = number not in names or number in found.unsound.get("devices", ())
        yield f"unknown device {number}" if lost else names[number]


def _copy_versions(db: Database, journal: Journal, report: VerifyReport, last: int) -> None:
    """Copy updates, regimes and snapshots in order, since each depends on those before it."""
    versions = [version for version in report.snapshots if 0 < version <= last]
    rows = db.rows(f"SELECT {COVERED['regimes']} FROM regimes WHERE version <= ? ORDER BY rowid", last)
    regimes = {
        version: [RegimeStart.from_row(row) for row in group]
        for version, group in groupby(rows, key=lambda row: int(row[0]))
    }

    def arrive(version: int) -> None:
        if version in versions:
            journal.add_snapshot(version, *_snapshot(db, version))
        for turn in regimes.get(version, ()):
            journal.add_regime(version, turn.regime, turn.kind)

    arrive(0)
    query = f"SELECT {COVERED['updates']}, frame FROM updates WHERE version <= ? ORDER BY version"
    for *facts, frame in db.rows(query, last):
        journal.add_row(tuple(facts), frame)
        if facts[0] in versions or facts[0] in regimes or facts[0] % _AT_ONCE == 0:
            arrive(facts[0])
            journal.commit()


def _snapshot(
    db: Database, version: int
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None, bytes | None]:
    query = "SELECT theta, average, memory FROM snapshots WHERE version = ?"
    theta, average, memory = db.row(query, version) or ()
    return np.frombuffer(theta, "<f4"), None if average is None else np.frombuffer(average, "<f4"), memory


def _rows(db: Database, found: Examination, table: str, last: int) -> Iterator[tuple[Any, ...]]:
    """The rows of a table up to a version whose checksums match."""
    if table in found.unreadable:
        return
    unsound = found.unsound.get(table, [])
    rows = f"SELECT rowid, {COVERED[table]} FROM {table} WHERE version <= ? ORDER BY rowid"
    for rowid, *row in db.rows(rows, last):
        if rowid not in unsound:
            yield tuple(row)
