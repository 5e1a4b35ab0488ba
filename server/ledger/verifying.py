"""Check a whole journal against its checksums, and decode its updates. Report which part is whole."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from edgeflock.server.database import Database, JournalLost, SqliteDatabase
from edgeflock.server.journal.contents import decode_run
from edgeflock.server.journal.records import JournaledUpdate
from edgeflock.server.journal.stores import mark
from edgeflock.server.journal.stores.chain import COVERED, Facts, vector_sum, walk
from edgeflock.server.journal.stores.examination import Examination, compare, examine, sqlite_error
from edgeflock.server.journal.stores.schema import schema_of
from edgeflock.server.ledger.claim import file_of, open_reader
from edgeflock.server.ledger.recovery import decode_update
from edgeflock.shared.errors import ConfigError, JournalDamaged, Refused
from edgeflock.shared.model.layout import Layout


@dataclass(slots=True)
class VerifyReport:
    """The result of a check. A server can start from the journal if there is no `damage`."""

    run: str
    version: int
    """The last version that it holds."""
    acknowledged: int
    """The last version that the mark names; -1 if it is unknown."""
    whole: int = 0
    """Every update up to this version has its checksum, follows the one before it, and decodes."""
    snapshots: list[int] = field(default_factory=list)
    """The versions of the snapshots that are whole and whose updates are."""
    dropped: int = 0
    """The records of updates up to this version were dropped (journal.keep_updates = false)."""
    repairs: list[tuple[int, int, str]] = field(default_factory=list)
    """(version, last dropped version, the previous run) of each earlier repair."""
    damage: list[str] = field(default_factory=list)


def verify(place: Path | str) -> VerifyReport:
    """Check the journal in a file or at a place (claim.py). Its server may be running.

    Raises ConfigError without a journal of this schema, JournalDamaged if no part of it can be read.
    """
    path = place if isinstance(place, Path) else file_of(place)
    if path is not None and not path.is_file():
        raise ConfigError(f"{path}: there is no such file; name a run's journal.sqlite, or its folder")
    marked = None if path is None else mark.read(path)  # before the journal, which may grow meanwhile
    try:
        with closing(open_reader(place)) as db:
            if not schema_of(db):
                raise ConfigError(f"{db.path} holds no run; name the journal of a server that has run")
            return check(db, marked)[0]
    except (JournalLost, sqlite3.Error) as error:
        raise ConfigError(f"{place if path else 'it'} cannot be read: {error}") from error


def check(db: Database, marked: mark.Heads | None) -> tuple[VerifyReport, Examination]:
    """Check an open journal, which had come as far as its mark notes."""
    found = examine(db)
    if isinstance(db, SqliteDatabase):
        compare(db, found, marked)
    run, *model = db.row("SELECT run, model, layout, start, data FROM meta") or ()
    layout = None if found.unsound.get("meta") else decode_run(db.path, run, *model).layout
    acknowledged = -1 if marked is None else marked["updates"].row
    result = VerifyReport(run, found.heads["updates"].row, acknowledged, damage=found.damage)
    last = _unsound_regime(db, found)
    rows = db.stream(f"SELECT {COVERED['updates']}, chain, frame FROM updates ORDER BY version")
    try:
        for facts, frame in walk(rows, found.heads["meta"].chain, found.chains, 0, db.path):
            if last is not None and facts[0] > last:
                break
            if frame and layout is not None and (fault := _mismatch(facts, frame, layout)):
                result.damage.append(f"version {facts[0]} is not a valid update of the model: {fault}")
                break
            result.whole = facts[0]
            if frame is None:
                result.dropped = facts[0]
    except JournalDamaged as damage:
        if isinstance(damage.__cause__, sqlite3.Error):
            result.damage.append(f"what follows version {result.whole} cannot be read: {damage.__cause__}")
        else:
            result.damage.append(str(damage).removeprefix(f"{db.path}: "))
    _check_snapshots(db, found, result)
    if isinstance(db, SqliteDatabase):  # PostgreSQL checks its pages by itself, and has pg_amcheck
        _check_pages(db, result)
    if not found.heads["regimes"].row and result.version:
        result.damage.append("it has no record of how its updates count")
    try:
        query = "SELECT count(*) FROM updates WHERE device > 0 AND device NOT IN (SELECT id FROM devices)"
        if (strangers := db.row(query)) and strangers[0]:
            result.damage.append(f"updates of devices that it does not know: {strangers[0]}")
        repairs = db.rows("SELECT version, given_up, run FROM repairs ORDER BY rowid")
        result.repairs = [(version, given_up, name) for version, given_up, name in repairs]
    except JournalDamaged as damage:
        result.damage.append(f"its devices or repairs cannot be read: {sqlite_error(damage)}")
    return result, found


def _mismatch(facts: Facts, frame: bytes, layout: Layout) -> str:
    """Why an update cannot be replayed, or differs from its row. Empty: neither."""
    version, _, sequence, time, _, samples, share, *_ = facts
    try:
        update, _ = decode_update(JournaledUpdate(version, frame, time, share), layout)
    except Refused as refusal:
        return str(refusal)
    if (update.sequence, update.samples) == (sequence, samples):
        return ""
    return (
        f"its record says number {update.sequence} of {update.samples} samples, its row number {sequence} "
        f"of {samples}"
    )


def _unsound_regime(db: Database, found: Examination) -> int | None:
    """The version at which the first damaged regime begins. Later updates cannot be interpreted."""
    begins = "SELECT version FROM regimes WHERE rowid >= ? ORDER BY rowid LIMIT 1"
    versions = [db.row(begins, number) for number in found.unsound.get("regimes", ())]
    return min((int(row[0]) for row in versions if row is not None), default=None)


def _check_snapshots(db: Database, found: Examination, result: VerifyReport) -> None:
    try:
        chains = dict(
            db.rows("SELECT version, chain FROM updates WHERE version IN (SELECT version FROM snapshots)")
        )
        chains[0] = found.heads["meta"].chain
        for version, theta, average, memory, record, chain in db.stream(
            "SELECT version, theta, average, memory, sum, chain FROM snapshots ORDER BY version"
        ):
            if version > result.whole:
                result.damage.append(f"the snapshot of version {version} is of an update that is not whole")
            elif vector_sum(version, chain, theta, average, memory) != record or chain != chains.get(version):
                result.damage.append(f"the snapshot of version {version} has a wrong checksum")
            else:
                result.snapshots.append(version)
    except JournalDamaged as damage:
        result.damage.append(f"its snapshots cannot be read: {sqlite_error(damage)}")
    last = max(found.chains, default=0)
    if max(result.snapshots, default=0) < last:
        result.damage.append(f"no snapshot is whole since version {last}, at which the settings changed")
    if 0 not in result.snapshots:
        result.damage.append("it holds no whole snapshot of version 0")


def _check_pages(db: Database, result: VerifyReport) -> None:
    """Check the pages that hold no rows, too, since damage there does harm later."""
    try:
        (answer,) = db.row("PRAGMA quick_check(1)") or ("no answer",)
    except JournalDamaged as damage:
        result.damage.append(f"its pages cannot be read: {sqlite_error(damage)}")
        return
    if answer != "ok":
        result.damage.append(f"SQLite finds its pages damaged: {answer}")
