"""What SQLite and PostgreSQL have in common.

Statements are in the syntax that both share, with `?` for a value. Tables are declared once, in SQLite's
types.
"""

import errno
import logging
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from edgeflock.shared.errors import ConfigError, EdgeflockError

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


log = logging.getLogger(__name__)

UNREACHABLE = "the journal's database does not answer; this server's log says why"
"""The public reason. Only the log names the database's location."""

URL_FILE = "identities.url"
"""A file in the run's directory with the URL of the database that holds the register, too."""

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"""SQLITE_ERROR: a valid statement fails, so a table or a column is missing."""

_TRANSIENT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


class JournalLost(EdgeflockError, OSError):
    """The database does not answer, or refuses writes of this process.

    Updates without a receipt may be in it or not. The next server of the run finds out.
    """


class Unreachable(ConfigError):
    """The database does not answer now."""


class Outage:
    """Logs why a database does not answer, once for each reason."""

    def __init__(self) -> None:
        self._logged = ""

    def report(self, error: Exception) -> None:
        if str(error) != self._logged:
            self._logged = str(error)
            log.warning("%s", error)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite reports a damaged file or no database. A full disk, say, is no damage."""
    # The low byte is the kind of the error; the others are its details.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def is_transient(error: BaseException | None) -> bool:
    """Whether an error may pass by itself: the database does not answer, or the disk is full."""
    while error is not None:
        if isinstance(error, JournalLost | Unreachable):
            return True
        if isinstance(error, sqlite3.OperationalError) and not is_damage(error):
            return True
        if isinstance(error, OSError) and error.errno in _TRANSIENT:
            return True
        error = error.__cause__
    return False


def redact(url: str) -> str:
    """The URL without its password."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1@", re.sub(r"([?&]password=)[^&]*", r"\1...", url))
