"""A journal in a PostgreSQL database: one schema of it holds one run.

Statements are the journal's own, translated to PostgreSQL's syntax and types. A group of updates is one
INSERT of arrays, in a transaction that is valid only during its lease's epoch (lease.py). So a replaced
server cannot write any more.

PostgreSQL has its own tools for what the SQLite store does for a file: checksums of pages (initdb
--data-checksums), backups (pg_dump, pg_basebackup), a copy on another machine (a synchronous
standby).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

from edgeflock.server.ledger.stores.chain import normalize
from edgeflock.server.ledger.stores.dialect import TYPES, to_postgres
from edgeflock.server.ledger.stores.examination import Examination, scan
from edgeflock.server.ledger.stores.lease import Lease
from edgeflock.server.ledger.stores.links import JournalLost, connect, interrupt, map_errors, psycopg, redact
from edgeflock.server.ledger.stores.mark import Heads
from edgeflock.server.ledger.stores.migrations import SCHEMA, TABLES
from edgeflock.server.ledger.stores.store import all_columns, columns
from edgeflock.shared.errors import ConfigError, JournalDamaged, JournalTooNew

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

_FETCH_ROWS = 16
"""Rows that are fetched at a time. Each may hold a large model."""


class _Database:
    """The common part of reader and store."""

    def __init__(self, url: str, application: str) -> None:
        """Raises ConfigError if there is no such database, or no psycopg."""
        self.path = redact(url)
        self._url = url
        self._connection: Connection[Any] = connect(url, application)

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> "Cursor[Any]":
        """Raises JournalLost if the database does not answer, JournalDamaged if a table is missing."""
        with map_errors(self.path):
            return self._connection.execute(to_postgres(statement), values or None, binary=True)

    def rows(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        return iter(self.execute(statement, values))

    def schema(self) -> int:
        """The journal's schema; 0 without a journal. Raises JournalTooNew, ConfigError if it is older."""
        if self.execute("SELECT to_regclass('lease')").fetchone() == (None,):
            return 0
        (schema,) = self.execute("SELECT schema FROM lease").fetchone() or (0,)
        if schema > SCHEMA:
            raise JournalTooNew(
                f"{self.path} has journal schema {schema} and this Edgeflock reads up to {SCHEMA}, so a "
                "newer one wrote it; upgrade this one, or begin a run in another database"
            )
        if 0 < schema < SCHEMA:
            raise ConfigError(
                f"{self.path} has journal schema {schema}, this Edgeflock's is {SCHEMA}; copy it to a file "
                "with the Edgeflock that wrote it (edgeflock journal copy), open that with this one, and "
                "copy it back"
            )
        return int(schema)

    def close(self) -> None:
        self._connection.close()


class PostgresReader(_Database):
    """A database for reading, as of one moment. Implements JournalDatabase (database.py)."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "edgeflock reads")
        self._streams = count()
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def stream(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        with map_errors(self.path), self._connection.cursor(f"stream {next(self._streams)}") as cursor:
            cursor.itersize = _FETCH_ROWS
            yield from cursor.execute(to_postgres(statement), values or None, binary=True)


class PostgresStore(_Database):
    """The journal of a run, to be written while the lease lasts. Implements JournalStore (store.py)."""

    def __init__(self, url: str, lease: Lease, *, durable: bool = True) -> None:
        """`lease` is this process's, and is closed with the store.

        Raises ConfigError if the database cannot store durably, JournalDamaged, JournalTooNew.
        """
        super().__init__(url, "edgeflock journal")
        self.examination: Examination | None = None
        self._lease = lease
        self._warning = ""
        self._connection.add_notice_handler(self._record_warning)
        try:
            self._set_up(durable)
            if self.schema():
                self.examination = scan(self, self.path)
                if self.examination.damage:
                    raise JournalDamaged(f"{self.path}: {self.examination.damage[0]}")
            self.add_loss_callback(lambda: interrupt(self._connection))
        except BaseException:
            self.close()
            raise

    def _set_up(self, durable: bool) -> None:
        (fsync, encoding) = self.execute(
            "SELECT current_setting('fsync'), current_setting('server_encoding')"
        ).fetchone() or ("", "")
        if durable and fsync != "on":
            raise ConfigError(f"{self.path} has fsync = {fsync}, so nothing in it is durable; set it to on")
        if encoding != "UTF8":
            raise ConfigError(
                f"{self.path} is encoded in {encoding}; make one with: createdb -E UTF8 -T template0"
            )
        weak = "('off', 'local')" if durable else "('on', 'local', 'remote_write', 'remote_apply')"
        self.execute(
            f"SELECT set_config('synchronous_commit', '{'on' if durable else 'off'}', false) "
            f"WHERE current_setting('synchronous_commit') IN {weak}"
        )
        # A statement that times out while it waits for a standby would count as committed.
        self.execute("SET statement_timeout = 0")
        # A process that stops in the middle of a transaction must not block the next one.
        self.execute(f"SET idle_in_transaction_session_timeout = {round(1000 * self._lease.seconds)}")

    def _record_warning(self, notice: Any) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warning = notice.message_primary or "a warning"

    def stream(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        # It uses a connection of its own, since others write while it lasts.
        with closing(PostgresReader(self._url)) as reader:
            yield from reader.stream(statement, *values)

    @property
    def _in_transaction(self) -> bool:
        return bool(self._connection.info.transaction_status != psycopg().pq.TransactionStatus.IDLE)

    def begin(self) -> None:
        if self._in_transaction:
            return
        # In one message: in a psycopg pipeline PostgreSQL 15 forgets the timeout of _set_up.
        begun = f"BEGIN; SELECT FROM lease WHERE epoch = {self._lease.epoch} FOR SHARE"
        with map_errors(self.path, self._lease):
            mine = self._connection.execute(begun.encode())
            mine.nextset()
            if mine.rowcount != 1:
                self._connection.execute("ROLLBACK")
                raise JournalLost(f"{self.path}: {self._lease.takeover_message()}")

    def create_tables(self) -> None:
        self.begin()
        with map_errors(self.path, self._lease):
            self._connection.execute(tables())
            self._connection.execute("UPDATE lease SET schema = %s", (SCHEMA,))

    def write(self, statement: str, *values: object) -> None:
        self.begin()
        with map_errors(self.path, self._lease):
            self._connection.execute(to_postgres(statement), values, binary=True)

    def add_updates(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.begin()
        with map_errors(self.path, self._lease):
            self._connection.execute(_insert_updates(), _columns_of(rows))

    def commit(self, heads: Heads) -> None:
        if not self._in_transaction:
            return
        with map_errors(self.path, self._lease):
            self._warning = ""
            done = self._connection.execute("COMMIT").statusmessage
        if done != "COMMIT" or self._warning:
            # A commit that warns that it did not wait for its standby counts as failed, too.
            raise JournalLost(f"{self.path}: the commit failed: {self._warning or done}")

    def loss_reason(self) -> str:
        return self._lease.loss_reason()

    def add_loss_callback(self, callback: Callable[[], None]) -> None:
        self._lease.add_loss_callback(callback)

    def close(self) -> None:
        self._lease.close()
        super().close()


@cache
def tables() -> str:
    """The tables of a new journal in PostgreSQL's syntax. The server itself, 0, is not among the devices."""
    text = to_postgres(TABLES.replace("REFERENCES devices", ""))
    for table in columns():
        if all_columns(table)[0] == "rowid":
            text = text.replace(
                f"CREATE TABLE {table} (", f"CREATE TABLE {table} (rowid BIGINT PRIMARY KEY, "
            )
    # Records are as short as possible, so the database does not compress them again.
    stored = (
        f"ALTER TABLE {table} ALTER COLUMN {name} SET STORAGE EXTERNAL;"
        for table, kinds in columns().items()
        for name, kind in kinds.items()
        if kind == "BLOB"
    )
    return text + " ".join(stored)


@cache
def _insert_updates() -> str:
    kinds = columns()["updates"]
    arrays = ", ".join(f"%b::{TYPES[kind]}[]" for kind in kinds.values())
    return f"INSERT INTO updates ({', '.join(kinds)}) SELECT * FROM unnest({arrays})"


def _columns_of(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """The rows' values by column, as every database stores them."""
    kinds = columns()["updates"].values()
    return [
        [*map(normalize, values)] if kind == "REAL" else [*values]
        for kind, values in zip(kinds, zip(*rows, strict=True), strict=True)
    ]
