"""The interface of a journal's database: SQLite (sqlite.py) or PostgreSQL (postgres.py).

Rows, their order and their checksums are the journal's, and the same in both. A store executes statements
in the syntax that both share (`?` for a value), has transactions, and knows whether it may write.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Protocol

from edgeflock.server.ledger.stores.chain import key_of
from edgeflock.server.ledger.stores.examination import Examination
from edgeflock.server.ledger.stores.mark import Heads
from edgeflock.server.ledger.stores.migrations import TABLES


class JournalSource(Protocol):
    """The source of a journal. Methods raise JournalDamaged; OSError or sqlite3.Error if it fails."""

    def rows(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """The rows of a statement that reads."""

    def stream(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """The rows one at a time, for large results. Uncommitted rows may be missing."""


class JournalStore(JournalSource, Protocol):
    """The store that a journal is written to."""

    path: Any
    """The store's location, for messages."""
    examination: Examination | None
    """The examination of the journal in it. None: it holds no run."""

    def begin(self) -> None:
        """Begin a transaction, unless one is open."""

    def create_tables(self) -> None:
        """Create the tables of a new journal, in a transaction that stays open."""

    def write(self, statement: str, *values: object) -> None:
        """Execute a statement in the open transaction, or begin one."""

    def add_updates(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add whole rows to the updates, in the same way."""

    def commit(self, heads: Heads) -> None:
        """Return when the open transaction, if any, is durable. `heads` is each table's end after it."""

    def loss_reason(self) -> str:
        """Why this process may not write any more, without a failed write. Empty: it may."""

    def add_loss_callback(self, callback: Callable[[], None]) -> None:
        """Register a callback for that moment. Another thread calls it."""

    def close(self) -> None:
        """Close the store. Uncommitted writes are dropped."""


@cache
def columns() -> dict[str, dict[str, str]]:
    """Table -> column -> its type, for the tables of `TABLES`, in order."""
    db = sqlite3.connect(":memory:")
    try:
        db.executescript(TABLES)
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: {row[1]: row[2] for row in db.execute(f"PRAGMA table_info({table})")} for table in names
        }
    finally:
        db.close()


def all_columns(table: str) -> list[str]:
    """All columns of a table. They begin with the row number where SQLite assigns it."""
    names, key = list(columns()[table]), key_of(table)
    return names if table == "meta" or key in names else [key, *names]


def insert(table: str, names: Iterable[str]) -> str:
    """The statement that inserts a row of these columns."""
    listed = list(names)
    return f"INSERT INTO {table} ({', '.join(listed)}) VALUES ({', '.join('?' * len(listed))})"
