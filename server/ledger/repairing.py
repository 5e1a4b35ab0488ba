"""Rebuild a journal from the whole part of another one, up to a version. The rest is dropped.

The result is another run, since it will make versions again that devices hold already, with other content.
Devices start from its model when they join (`RunReplaced`), and lose only the updates that were dropped.
"""

import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeflock.server.database import SUFFIXES, Database, SqliteDatabase, columns
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.stores import mark
from edgeflock.server.journal.stores.examination import Examination, examine, seal
from edgeflock.server.journal.stores.schema import SCHEMA, TABLES, schema_of
from edgeflock.server.ledger.claim import lock
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.ledger.verifying import VerifyReport, check
from edgeflock.shared.errors import ConfigError, JournalDamaged


@dataclass(frozen=True, slots=True)
class RepairReport:
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
        raise ConfigError(f"{path}: there is no such file; name a run's journal.sqlite, or its folder")
    with lock(path.parent, "the folder of PATH"):
        fresh, backup = path.with_name(path.name + ".repaired"), _backup(path)
        _remove(fresh)
        marked = mark.read(path)
        with closing(SqliteDatabase(path, read_only=True)) as db:
            if not schema_of(db):
                raise ConfigError(f"{path} holds no run, so nothing can be repaired")
            report, found = check(db, marked)
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
    if found.unsound.get("meta"):
        raise JournalDamaged("the run, model and layout of the journal are damaged: restore a copy of it")
    name = secrets.token_hex(8)
    with closing(SqliteDatabase(fresh)) as new:
        new.create(TABLES, SCHEMA)
        for table, declared in TABLES.items():
            for row in _kept_rows(db, found, report, table, version):
                new.insert(table, declared, [row])
        new.write("UPDATE meta SET run = ?", name)
        seal(new.connection)
        new.commit()
        with closing(mark.ProgressFile(fresh, durable=True)) as noted:
            noted.note(examine(new).heads, flush=True)
    with closing(Journal(fresh)) as journal:
        journal.add_repair(version, max(report.acknowledged, report.version), report.run, now)
        run = journal.run()
        assert run is not None, "it was copied"
        parameters = replay(journal, run.layout, newest=True)
        journal.add_snapshot(version, parameters.theta, parameters.average, parameters.packed_memory())
    return name


_EXPENDABLE = ("evaluations", "adjustments", "repairs")
"""Tables without which the model is the same. Of others, the rows up to the version can be read."""


def _kept_rows(
    db: Database, found: Examination, report: VerifyReport, table: str, version: int
) -> Iterator[tuple[Any, ...]]:
    """The rows of a table up to a version whose checksums match, numbered without gaps."""
    if table == "devices":
        yield from _devices(db, found, version)
        return
    if table in found.unreadable and table in _EXPENDABLE:
        return
    names = columns(TABLES[table])
    bound = "" if table == "meta" else f" WHERE version <= {version}"
    unsound, number = found.unsound.get(table, []), 0
    for row in db.rows(f"SELECT {', '.join(names)} FROM {table}{bound} ORDER BY 1"):
        if row[0] in unsound or table == "snapshots" and row[0] not in report.snapshots:
            continue
        number += 1
        yield (number, *row[1:]) if "rowid" in names else row


def _devices(db: Database, found: Examination, version: int) -> Iterator[tuple[Any, ...]]:
    """All devices. A lost name is replaced: updates refer to numbers."""
    known = {row[0]: row for row in db.rows("SELECT id, name, ingress, egress FROM devices")}
    (last,) = db.row("SELECT max(device) FROM updates WHERE version <= ?", version) or (0,)
    for number in range(1, max(last or 0, *known, 0) + 1):
        _, name, *traffic = known.get(number, (number, "", 0, 0))
        lost = number not in known or number in found.unsound.get("devices", ())
        yield number, f"unknown device {number}" if lost else name, *traffic, 0
