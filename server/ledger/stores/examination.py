"""Examine a journal: compare it with its checksums and with its mark.

A start examines the small tables, which are the run, its devices, regimes and evaluations, and each table's
end. Updates are checked where they are read (`chain.walk`), and so are snapshots, so that a start reads only
what it needs. `edgeflock journal verify` reads everything (damage/verifying.py).
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeflock.server.ledger.stores.chain import COVERED, frame_sum, key_of, row_sum, update_sum, vector_sum
from edgeflock.server.ledger.stores.database import JournalDatabase
from edgeflock.server.ledger.stores.mark import Head, Heads, mark_path
from edgeflock.shared.errors import JournalDamaged

_LISTS = ("devices", "adjustments", "evaluations", "repairs")

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"""SQLITE_ERROR: a valid statement fails, so a table or a column is missing."""


@dataclass(slots=True)
class Examination:
    """The result of an examination."""

    heads: Heads = field(default_factory=dict)
    """The end of each table."""
    chains: dict[int, int] = field(default_factory=dict)
    """Version at which a regime began -> the chain after the regime."""
    damage: list[str] = field(default_factory=list)
    unsound: dict[str, list[int]] = field(default_factory=dict)
    """Table -> the numbers of its rows whose checksums do not match."""
    unreadable: set[str] = field(default_factory=set)
    """Tables that SQLite cannot read completely."""

    @property
    def version(self) -> int:
        return self.heads["updates"].row

    @property
    def chain(self) -> int:
        """The chain that the next update follows."""
        return self.chains.get(self.version, self.heads["updates"].chain)

    def add_damage(self, table: str, number: int, reason: str) -> None:
        self.unsound.setdefault(table, []).append(number)
        self.damage.append(f"row {number} of its {table} {reason}")


class File(sqlite3.Connection):
    """Implements JournalDatabase (database.py)."""

    def stream(self, statement: str, *values: object) -> Iterator[Any]:
        return self.execute(statement, values)


@contextmanager
def open_file(path: Path) -> Iterator[File]:
    """A connection that changes nothing. It leaves the write-ahead log as it is."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, factory=File)) as db:
        replace_bad_text(db)
        yield db


def replace_bad_text(db: sqlite3.Connection) -> None:
    """Decode damaged text, too. Its checksum does not match."""
    db.text_factory = lambda octets: octets.decode("utf-8", "replace")


def examine(db: File, path: Path, marked: Heads | None) -> Examination:
    """Examine a file, except updates and snapshots, and compare it with its mark `marked`.

    Raises JournalDamaged if no part of it can be read.
    """
    with _map_errors(path):
        found = _examine(db, path)
        _compare(db, path, found, marked)
        return found


def scan(db: JournalDatabase, path: object) -> Examination:
    """Examine any database in the same way, without a mark."""
    with _map_errors(path):
        return _examine(db, path)


@contextmanager
def _map_errors(path: object) -> Iterator[None]:
    """Raise JournalDamaged for type and value errors, which damaged table definitions cause."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise JournalDamaged(f"{path} is damaged: its tables are not those of a journal: {error}") from error


def _examine(db: JournalDatabase, path: object) -> Examination:
    found = Examination()
    try:
        rows = db.execute(f"SELECT {COVERED['meta']}, chain FROM meta").fetchall()
    except sqlite3.Error as error:
        raise_if_damaged(path, error)
        raise
    if len(rows) != 1:
        raise JournalDamaged(f"{path} is damaged: it holds no run")
    *row, genesis = rows[0]
    if row_sum(0, row) != genesis:
        found.add_damage("meta", 1, "has a wrong checksum")
    found.heads["meta"] = Head(1, genesis)
    for table in _LISTS:
        found.heads[table] = _examine_list(db, table, genesis, found)
    with _record_errors(found, "updates"):
        found.heads["updates"] = Head(0, genesis)
        for last in db.execute("SELECT version, chain FROM updates ORDER BY version DESC LIMIT 1"):
            found.heads["updates"] = Head(*last)
    found.heads["regimes"] = _examine_regimes(db, genesis, found)
    return found


def _examine_list(db: JournalDatabase, table: str, genesis: int, found: Examination) -> Head:
    number, chain, key = 0, genesis, key_of(table)
    with _record_errors(found, table):
        for rowid, *row, stored in db.execute(
            f"SELECT {key}, {COVERED[table]}, chain FROM {table} ORDER BY {key}"
        ):
            number += 1
            if rowid != number:
                found.add_damage(table, number, "is missing")
                number = rowid
            elif row_sum(chain, row) != stored:
                found.add_damage(table, number, "has a wrong checksum")
            chain = stored
    return Head(number, chain)


def _examine_regimes(db: JournalDatabase, genesis: int, found: Examination) -> Head:
    """Check the regimes. Each is a link in the chain of versions, after the update of its version."""
    number, chain, before = 0, genesis, -1
    with _record_errors(found, "regimes"):
        rows = db.execute(f"SELECT rowid, {COVERED['regimes']}, chain FROM regimes ORDER BY rowid").fetchall()
        for rowid, *row, stored in rows:
            number += 1
            version = row[0]
            if rowid != number:
                found.add_damage("regimes", number, "is missing")
                number = rowid
            if version != before:
                query = "SELECT chain FROM updates WHERE version = ?"
                chain = genesis if version == 0 else next((c for (c,) in db.execute(query, (version,))), -1)
            if version < before or chain < 0 or row_sum(chain, row) != stored:
                found.add_damage("regimes", number, "has a wrong checksum")
            found.chains[version] = chain = stored
            before = version
    return Head(number, chain)


def _compare(db: sqlite3.Connection, path: Path, found: Examination, marked: Heads | None) -> None:
    """Compare with the mark. The process may have been killed before its last notes."""
    if marked is None:
        found.damage.append(f"{mark_path(path).name}, which records its last version, is missing or damaged")
        return
    for table, (count, chain) in sorted(marked.items(), key=lambda part: part[0] == "updates"):
        head = found.heads[table]
        if count > head.row:
            message = f"it ends at version {head.row}, and version {count} was acknowledged"
            if table != "updates":
                message = f"of its {table} {head.row} are left, and {count} were written"
            found.damage.insert(0, message)
            continue
        with _record_errors(found, table):
            stored = found.heads["meta"].chain
            if count:
                rows = db.execute(f"SELECT chain FROM {table} WHERE rowid = ?", (count,))
                stored = next((c for (c,) in rows), -1)
            if stored != chain and (count or table != "regimes"):
                found.damage.append(f"its {table} differ from those in {mark_path(path).name}")


@contextmanager
def _record_errors(found: Examination, table: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        found.unreadable.add(table)
        found.damage.append(f"its {table} cannot be read: {error}")


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite reports a damaged file or no database. A full disk, say, is no damage."""
    # The low byte is the kind of the error; the others are its details.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def raise_if_damaged(path: object, error: sqlite3.Error) -> None:
    """Raise JournalDamaged if `error` means damage of `path`."""
    if is_damage(error):
        raise JournalDamaged(
            f"{path} is damaged, or no journal: {error}; restore a copy of it, or choose another directory"
        ) from error


def seal(db: sqlite3.Connection) -> None:
    """Add the checksums to a journal of schema 8 that has none yet."""
    (*meta,) = db.execute(f"SELECT {COVERED['meta']} FROM meta").fetchone()
    genesis = row_sum(0, meta)
    db.execute("UPDATE meta SET chain = ?", (genesis,))
    for table in _LISTS:
        _seal_rows(db, table, genesis)
    regimes: dict[int, list[tuple[int, list[object]]]] = {}
    for rowid, *row in db.execute(f"SELECT rowid, {COVERED['regimes']} FROM regimes ORDER BY rowid"):
        regimes.setdefault(row[0], []).append((rowid, row))
    chain = _seal_regimes(db, regimes.get(0, ()), genesis)
    facts = COVERED["updates"].removesuffix(", sum")
    chains = {0: genesis}
    for version, *rest, frame in db.execute(f"SELECT {facts}, frame FROM updates ORDER BY version"):
        record = frame_sum(frame or b"")
        chains[version] = chain = update_sum(chain, (version, *rest, record))
        db.execute("UPDATE updates SET sum = ?, chain = ? WHERE version = ?", (record, chain, version))
        chain = _seal_regimes(db, regimes.get(version, ()), chain)
    query = "SELECT version, theta, average, memory FROM snapshots"
    for version, theta, average, memory in db.execute(query).fetchall():
        chain = chains[version]
        sums = vector_sum(version, chain, theta, average, memory), chain, version
        db.execute("UPDATE snapshots SET sum = ?, chain = ? WHERE version = ?", sums)


def _seal_rows(db: sqlite3.Connection, table: str, chain: int) -> None:
    rows = db.execute(f"SELECT rowid, {COVERED[table]} FROM {table} ORDER BY rowid").fetchall()
    for rowid, *row in rows:
        chain = row_sum(chain, row)
        db.execute(f"UPDATE {table} SET chain = ? WHERE rowid = ?", (chain, rowid))


def _seal_regimes(db: sqlite3.Connection, regimes: Iterable[tuple[int, list[object]]], chain: int) -> int:
    for rowid, row in regimes:
        chain = row_sum(chain, row)
        db.execute("UPDATE regimes SET chain = ? WHERE rowid = ?", (chain, rowid))
    return chain
