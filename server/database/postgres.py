"""A connection to a PostgreSQL database: one schema of it holds one run.

PostgreSQL has its own tools for what an application does for a file: checksums of pages (initdb
--data-checksums), backups (pg_dump, pg_basebackup), a copy on another machine (a synchronous standby).
"""

import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import count
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgeflock.server.database.database import (
    Database,
    JournalLost,
    Row,
    Tables,
    Unreachable,
    columns,
    redact,
)
from edgeflock.shared.errors import ConfigError, JournalDamaged, one_line
from edgeflock.shared.extras import install_command

if TYPE_CHECKING:
    from psycopg import Connection

TIMEOUT = 5
"""Seconds to wait for a database to accept a connection."""

_FETCH_ROWS = 16
"""Rows that are fetched at a time. Each may hold a large model."""

_TYPES = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "TEXT": "TEXT", "BLOB": "BYTEA"}
"""SQLite's type -> PostgreSQL's."""


_LOCK = "pg_advisory_xact_lock(hashtextextended('edgeflock register ' || current_schema(), 0))"


def psycopg() -> ModuleType:
    """The psycopg module. Raises ConfigError if it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError(
            f"journal.url is a PostgreSQL database, which needs: {install_command('postgres')}"
        ) from error
    return psycopg


class PostgresDatabase(Database):
    """A database at a URL. Outside of transactions each statement is committed by itself."""

    def __init__(self, url: str, application: str) -> None:
        """`application` is the connection's name in the database's lists.

        Raises ConfigError, Unreachable if waiting may help.
        """
        self.path = redact(url)
        self._url = url
        driver = psycopg()
        try:
            options = driver.conninfo.conninfo_to_dict(url)
            # Of several hosts choose the one that takes writes, which a standby of the database does not.
            defaults = {
                "application_name": application,
                "connect_timeout": TIMEOUT,
                "target_session_attrs": "read-write",
                "keepalives_idle": TIMEOUT,
                "keepalives_interval": 2,
                "keepalives_count": 3,
                "tcp_user_timeout": 3000 * TIMEOUT,
            }
            self.connection: Connection[Any] = driver.connect(**{**defaults, **options}, autocommit=True)
        except driver.Error as error:
            if re.search('database ".*" does not exist', reason := one_line(error)):
                raise ConfigError(f"journal.url: {self.path}: {reason}; create it or name another") from error
            raise Unreachable(f"journal.url: {self.path} cannot be reached: {reason}") from error
        self._warning = ""
        self.connection.add_notice_handler(self._record_warning)
        try:
            self._check_schema()
        except BaseException:
            self.connection.close()
            raise

    def _check_schema(self) -> None:
        """Raises ConfigError if no schema of the search path exists."""
        schema, searched = self.row("SELECT current_schema(), current_setting('search_path')") or (None, "")
        if schema is None:
            raise ConfigError(
                f"journal.url: {self.path} has no schema that its user may use: search_path names "
                f"{searched}; create it in that database (CREATE SCHEMA {searched}), or name one that exists"
            )

    def _record_warning(self, notice: Any) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warning = notice.message_primary or "a warning"

    def set_timeout(self, name: str, seconds: float) -> None:
        """Let PostgreSQL end this connection if it is silent for so long. 0: it does not."""
        self.execute(f"SET {name}_timeout = {round(1000 * seconds)}")

    @contextmanager
    def map_errors(self) -> Iterator[None]:
        """Convert psycopg's errors to JournalLost, JournalDamaged or ConfigError."""
        driver = psycopg()
        try:
            yield
        except (driver.errors.UndefinedTable, driver.errors.UndefinedColumn) as error:
            raise JournalDamaged(f"{self.path} is damaged, or no journal: {one_line(error)}") from error
        except driver.errors.InsufficientPrivilege as error:
            raise ConfigError(
                f"journal.url: {self.path}: {error.diag.message_primary or error}; let its user own the "
                "schema, or allow it to write there (GRANT USAGE, CREATE ON SCHEMA ... TO ...)"
            ) from error
        except driver.Error as error:
            reason = self.loss_reason() or one_line(error)
            raise JournalLost(f"{self.path}: {reason}") from error

    def execute(self, statement: str, *values: object) -> Any:
        """Execute a statement, in the open transaction or by itself. Returns a cursor."""
        with self.map_errors():
            stored = [normalize(value) for value in values] or None
            return self.connection.execute(_in_syntax(statement), stored, binary=True)

    def rows(self, statement: str, *values: object) -> Iterator[Row]:
        return iter(self.execute(statement, *values))

    def stream(self, statement: str, *values: object) -> Iterator[Row]:
        # It uses a connection of its own, since others write while it lasts.
        with closing(PostgresReader(self._url)) as reader:
            yield from reader.stream(statement, *values)

    @property
    def in_transaction(self) -> bool:
        return bool(self.connection.info.transaction_status != psycopg().pq.TransactionStatus.IDLE)

    def create(self, tables: Tables, schema: int) -> None:
        self.begin()
        self.execute(f"SELECT {_LOCK}")  # two processes must not make one table at a time
        for name, declared in tables.items():
            kinds = columns(declared)
            own = ", ".join(f"{column} {_in_types(kind)}" for column, kind in kinds.items())
            self.execute(f"CREATE TABLE {'' if schema else 'IF NOT EXISTS '}{name} ({own})")
            for column, kind in kinds.items() if schema else ():
                if kind.startswith("BLOB"):  # as short as possible: the database need not compress it again
                    self.execute(f"ALTER TABLE {name} ALTER COLUMN {column} SET STORAGE EXTERNAL")
        if schema:
            self.execute("UPDATE lease SET schema = ?", schema)

    def schema(self) -> int:
        if self.row("SELECT to_regclass('lease')") == (None,):
            return 0
        (schema,) = self.row("SELECT schema FROM lease") or (0,)
        return int(schema)

    def begin(self) -> None:
        if not self.in_transaction:
            with self.map_errors():
                self.connection.execute("BEGIN")

    def write(self, statement: str, *values: object) -> None:
        self.begin()
        self.execute(statement, *values)

    def insert(self, table: str, declared: str, rows: Sequence[Row]) -> None:
        self.begin()
        statement, is_real = _insertion(table, declared)
        arrays = [
            [*map(normalize, values)] if real else [*values]
            for real, values in zip(is_real, zip(*rows, strict=True), strict=True)
        ]
        with self.map_errors():
            self.connection.execute(statement, arrays)

    def commit(self) -> None:
        if not self.in_transaction:
            return
        with self.map_errors():
            self._warning = ""
            done = self.connection.execute("COMMIT").statusmessage
        if done != "COMMIT" or self._warning:
            # A commit that warns that it did not wait for its standby counts as failed, too.
            raise JournalLost(f"{self.path}: the commit failed: {self._warning or done}")

    def rollback(self) -> None:
        if self.in_transaction:
            with self.map_errors():
                self.connection.execute("ROLLBACK")

    def close(self) -> None:
        self.connection.close()

    def interrupt(self) -> None:
        with (
            suppress(OSError, psycopg().Error),
            socket.socket(fileno=os.dup(self.connection.fileno())) as line,
        ):
            line.shutdown(socket.SHUT_RDWR)


class PostgresReader(PostgresDatabase):
    """A database for reading, as of one moment."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "edgeflock reads")
        self._streams = count()
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def stream(self, statement: str, *values: object) -> Iterator[Row]:
        with self.map_errors(), self.connection.cursor(f"stream {next(self._streams)}") as cursor:
            cursor.itersize = _FETCH_ROWS
            yield from cursor.execute(_in_syntax(statement), values or None, binary=True)


def normalize(value: object) -> object:
    """A value as every database stores it: SQLite has no NaN and no negative zero, and stores true as 1."""
    if isinstance(value, float):
        return None if value != value else value + 0.0
    return int(value) if isinstance(value, bool) else value


@cache
def _in_syntax(statement: str) -> bytes:
    """The statement in psycopg's syntax."""
    return statement.replace("?", "%s").encode()


def _in_types(kind: str) -> str:
    """A column's type in PostgreSQL. The server itself, 0, is not among the devices."""
    word, _, rest = kind.partition(" ")
    return f"{_TYPES[word]} {rest.removesuffix('REFERENCES devices')}"


@cache
def _insertion(table: str, declared: str) -> tuple[bytes, list[bool]]:
    """(The statement that inserts rows as one array of each column, which columns hold real numbers)."""
    words = [kind.partition(" ")[0] for kind in columns(declared).values()]
    names = ", ".join(columns(declared))
    arrays = ", ".join(f"%b::{_TYPES[word]}[]" for word in words)
    statement = f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays})"
    return statement.encode(), [word == "REAL" for word in words]
