"""What a journal needs of the database that it lies in: SQLite (sqlite.py) or PostgreSQL (postgres.py).

Rows, their order and their checksums are the journal's and the same in both. A store knows statements in the
words that both have (`?` for a value), transactions, and who may write.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Protocol

from edgeflock.server.ledger.stores.chain import key_of
from edgeflock.server.ledger.stores.examination import Examined
from edgeflock.server.ledger.stores.mark import Heads
from edgeflock.server.ledger.stores.migrations import TABLES


class JournalSource(Protocol):
    """What a journal is read from. Methods raise OSError or sqlite3.Error if it cannot be reached or written,
    JournalDamaged where it is not as it was written.
    """

    def rows(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Of a statement that reads."""

    def stream(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """The same, one after the other, for more of them than memory has room for. What was not committed
        may be missing.
        """


class JournalStore(JournalSource, Protocol):
    """One that a journal lies in, and is written to."""

    path: Any
    """Where it is, for messages."""
    found: Examined | None
    """What of a journal is in it; None: it holds no run."""

    def begin(self) -> None:
        """A transaction, unless one is open."""

    def lay_out(self) -> None:
        """The tables of a new journal, in a transaction that stays open."""

    def write(self, statement: str, *values: object) -> None:
        """Within the transaction, which begins with it if none is open."""

    def add_updates(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Whole rows of the table, likewise."""

    def commit(self, heads: Heads) -> None:
        """Return when the transaction is durable, if one is open; `heads` say how far the journal then is."""

    def lost(self) -> str:
        """Why this process may write no more, though nothing that it wrote has failed; empty: it may."""

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call it then, from another thread."""

    def close(self) -> None:
        """Give up what was not committed."""


@cache
def columns() -> dict[str, dict[str, str]]:
    """Table -> column -> its type, of those in `TABLES`, in order."""
    db = sqlite3.connect(":memory:")
    try:
        db.executescript(TABLES)
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: {row[1]: row[2] for row in db.execute(f"PRAGMA table_info({table})")} for table in names
        }
    finally:
        db.close()


def whole_row(table: str) -> list[str]:
    """The columns of all that a table keeps, the rows' numbers first where SQLite gives them unasked."""
    names, key = list(columns()[table]), key_of(table)
    return names if table == "meta" or key in names else [key, *names]


def inserting(table: str, names: Iterable[str]) -> str:
    """The statement that adds a row of these columns."""
    listed = list(names)
    return f"INSERT INTO {table} ({', '.join(listed)}) VALUES ({', '.join('?' * len(listed))})"
