"""What SQLite and PostgreSQL have in common.

Statements are in the syntax that both share, with `?` for a value. Tables are declared once, in SQLite's
types.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

Row = tuple[Any, ...]

Tables = Mapping[str, str]
"""Table -> its columns, as SQLite declares them, separated by commas. A column `rowid` has the numbers of
rows, from 1 on. SQLite has it in most tables anyway."""


@cache
def columns(declared: str) -> Mapping[str, str]:
    """Column -> its type and what else holds for it."""
    return dict(column.strip().split(" ", 1) for column in declared.split(","))


class Database(ABC):
    """An open database. Methods raise JournalDamaged; OSError or sqlite3.Error if it fails."""

    path: Any
    """Its location, for messages."""

    @abstractmethod
    def rows(self, statement: str, *values: object) -> Iterator[Row]:
        """The rows of a statement that reads."""

    @abstractmethod
    def stream(self, statement: str, *values: object) -> Iterator[Row]:
        """The rows one at a time, for large results. Uncommitted rows may be missing."""

    def row(self, statement: str, *values: object) -> Row | None:
        """The first row, if there is any."""
        return next(self.rows(statement, *values), None)

    @abstractmethod
    def create(self, tables: Tables, schema: int) -> None:
        """Create tables of this schema, in a transaction that stays open. Schema 0: those that are absent."""

    @abstractmethod
    def schema(self) -> int:
        """The schema of the tables; 0 without tables, -1 if they are of another program."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction in which nobody else writes the same, unless one is open."""

    @abstractmethod
    def write(self, statement: str, *values: object) -> None:
        """Execute a statement in the open transaction, or begin one."""

    @abstractmethod
    def insert(self, table: str, declared: str, rows: Sequence[Row]) -> None:
        """Insert whole rows of a table that is declared like that, in the same way."""

    @abstractmethod
    def commit(self) -> None:
        """Return when the open transaction, if any, is durable."""

    @abstractmethod
    def rollback(self) -> None:
        """Drop the writes of the open transaction, if any."""

    @abstractmethod
    def close(self) -> None:
        """Close it. Uncommitted writes are dropped."""

    def loss_reason(self) -> str:
        """Why this process may not write any more, without a failed write. Empty: it may."""
        return ""

    def add_loss_callback(self, callback: Callable[[], None]) -> None:  # noqa: B027
        """Register a callback for that moment. Another thread calls it. A file is never lost."""

    def interrupt(self) -> None:  # noqa: B027
        """End waits for the database in other threads. Nobody waits for a file."""
