"""Examine a journal: compare it with its checksums and with its mark.

A start examines the small tables, which are the run, its devices, regimes and evaluations, and each table's
end. Updates are checked where they are read (`chain.walk`), and so are snapshots, so that a start reads only
what it needs. `edgeflock journal verify` reads everything (verifying.py).
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from edgeflock.server.database import Database
from edgeflock.server.journal.stores.chain import COVERED, frame_sum, key_of, row_sum, update_sum, vector_sum
from edgeflock.server.journal.stores.mark import Head, Heads, mark_path
from edgeflock.shared.errors import JournalDamaged

_LISTS = ("devices", "adjustments", "evaluations", "repairs")


@dataclass(slots=True)
class Examination:
    heads: Heads = field(default_factory=dict)
    """The end of each table."""
    chains: dict[int, int] = field(default_factory=dict)
    """Version at which a regime began -> the chain after the regime."""
    damage: list[str] = field(default_factory=list)
    unsound: dict[str, list[int]] = field(default_factory=dict)
    """Table -> the numbers of its rows whose checksums do not match."""
    unreadable: set[str] = field(default_factory=set)
    """Tables that SQLite cannot read completely."""

    def add_damage(self, table: str, number: int, reason: str) -> None:
        self.unsound.setdefault(table, []).append(number)
        self.damage.append(f"row {number} of its {table} {reason}")


def examine(db: Database) -> Examination:
    """Examine a journal, except its updates and snapshots. Raises JournalDamaged if no part can be read."""
    found = Examination()
    with _map_errors(db.path):
        rows = list(db.rows(f"SELECT {COVERED['meta']}, chain FROM meta"))
        if len(rows) != 1:
            raise JournalDamaged(f"{db.path} is damaged: it holds no run")
        *row, genesis = rows[0]
        if row_sum(0, row) != genesis:
            found.add_damage("meta", 1, "has a wrong checksum")
        found.heads["meta"] = Head(1, genesis)
        for table in _LISTS:
            found.heads[table] = _examine_list(db, table, genesis, found)
        found.heads["updates"] = Head(0, genesis)
        with _record_errors(found, "updates"):
            if last := db.row("SELECT version, chain FROM updates ORDER BY version DESC LIMIT 1"):
                found.heads["updates"] = Head(*last)
        found.heads["regimes"] = _examine_regimes(db, genesis, found)
    return found


@contextmanager
def _map_errors(path: object) -> Iterator[None]:
    """Raise JournalDamaged for type and value errors, which damaged table definitions cause."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise JournalDamaged(f"{path} is damaged: its tables are not those of a journal: {error}") from error


def _examine_list(db: Database, table: str, genesis: int, found: Examination) -> Head:
    number, chain, key = 0, genesis, key_of(table)
    with _record_errors(found, table):
        for rowid, *row, stored in db.rows(
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


def _examine_regimes(db: Database, genesis: int, found: Examination) -> Head:
    """Check the regimes. Each is a link in the chain of versions, after the update of its version."""
    number, chain, before = 0, genesis, -1
    with _record_errors(found, "regimes"):
        rows = list(db.rows(f"SELECT rowid, {COVERED['regimes']}, chain FROM regimes ORDER BY rowid"))
        for rowid, *row, stored in rows:
            number += 1
            version = row[0]
            if rowid != number:
                found.add_damage("regimes", number, "is missing")
                number = rowid
            if version != before:
                chain = genesis if version == 0 else _chain_of(db, "updates", version)
            if version < before or chain < 0 or row_sum(chain, row) != stored:
                found.add_damage("regimes", number, "has a wrong checksum")
            found.chains[version] = chain = stored
            before = version
    return Head(number, chain)


def compare(db: Database, found: Examination, marked: Heads | None) -> None:
    """Compare a file with its mark. The process may have been killed before its last notes."""
    name = mark_path(db.path).name
    if marked is None:
        found.damage.append(f"{name}, which records its last version, is missing or damaged")
        return
    for table, (count, chain) in sorted(marked.items(), key=lambda part: part[0] == "updates"):
        head = found.heads[table]
        if count > head.row:
            message = f"it ends at version {head.row}, and version {count} was acknowledged"
            if table != "updates":
                message = f"of its {table} {head.row} are left, and {count} were written"
            found.damage.insert(0, message)
            continue
        with _map_errors(db.path), _record_errors(found, table):
            stored = _chain_of(db, table, count) if count else found.heads["meta"].chain
            if stored != chain and (count or table != "regimes"):
                found.damage.append(f"its {table} differ from those in {name}")


def _chain_of(db: Database, table: str, number: int) -> Any:
    """The chain after a row, as it is stored; -1 if the row is missing."""
    (chain,) = db.row(f"SELECT chain FROM {table} WHERE {key_of(table)} = ?", number) or (-1,)
    return chain


@contextmanager
def _record_errors(found: Examination, table: str) -> Iterator[None]:
    try:
        yield
    except JournalDamaged as damage:
        found.damage.append(f"its {table} cannot be read: {sqlite_error(damage)}")
        found.unreadable.add(table)


def sqlite_error(damage: JournalDamaged) -> sqlite3.Error:
    """The error of SQLite that shows the damage. Raises `damage` if it is of another kind."""
    if isinstance(damage.__cause__, sqlite3.Error):
        return damage.__cause__
    raise damage


def seal(db: sqlite3.Connection) -> None:
    """Compute all checksums of a journal anew. Records that were dropped keep theirs."""
    (*meta,) = db.execute(f"SELECT {COVERED['meta']} FROM meta").fetchone()
    genesis = row_sum(0, meta)
    db.execute("UPDATE meta SET chain = ?", (genesis,))
    for table in _LISTS:
        _seal_rows(db, table, genesis)
    begins = {version for (version,) in db.execute("SELECT version FROM regimes")}
    chain = _seal_rows(db, "regimes", genesis, "WHERE version = 0")
    chains = {0: genesis}
    for *facts, record, frame in db.execute(
        f"SELECT {COVERED['updates']}, frame FROM updates ORDER BY version"
    ):
        version, record = facts[0], record if frame is None else frame_sum(frame)
        chains[version] = chain = update_sum(chain, (*facts, record))
        db.execute("UPDATE updates SET sum = ?, chain = ? WHERE version = ?", (record, chain, version))
        if version in begins:
            chain = _seal_rows(db, "regimes", chain, f"WHERE version = {version}")
    query = "SELECT version, theta, average, memory FROM snapshots"
    for version, theta, average, memory in db.execute(query).fetchall():
        chain = chains[version]
        sums = vector_sum(version, chain, theta, average, memory), chain, version
        db.execute("UPDATE snapshots SET sum = ?, chain = ? WHERE version = ?", sums)


def _seal_rows(db: sqlite3.Connection, table: str, chain: int, condition: str = "") -> int:
    query = f"SELECT rowid, {COVERED[table]} FROM {table} {condition} ORDER BY rowid"
    for rowid, *row in db.execute(query).fetchall():
        chain = row_sum(chain, row)
        db.execute(f"UPDATE {table} SET chain = ? WHERE rowid = ?", (chain, rowid))
    return chain
