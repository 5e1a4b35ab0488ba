"""A SQLite file with a write-ahead log. Only its owner may read it."""

import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from edgeflock.server.database.database import Database, Row, Tables, columns, is_damage
from edgeflock.shared.errors import JournalDamaged

log = logging.getLogger(__name__)

SUFFIXES = ("", "-wal", "-shm", "-mark")
"""The ends of the names of a database's files: itself, SQLite's own, and a journal's mark."""


class SqliteDatabase(Database):
    """The file at a path, or ":memory:"."""

    def __init__(self, path: Path, *, durable: bool = True, read_only: bool = False) -> None:
        """Open the file. It is made if there is none.

        Without `durable` a commit does not wait for the disk. With `read_only` it is read as of one moment,
        and changed in nothing: its write-ahead log stays as it is.
        """
        self.path = path
        on_disk = str(path) != ":memory:"
        with map_sqlite_errors(path):
            if read_only:
                self.connection = sqlite3.connect(
                    f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None
                )
            else:
                if on_disk:
                    _keep_private(path)
                self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # Damaged text is decoded, too. Its checksum does not match.
            self.connection.text_factory = lambda octets: octets.decode("utf-8", "replace")
            # Pages of 16 KiB hold several updates, which saves a quarter of a commit's time.
            synchronous = f"synchronous = {'FULL' if durable else 'OFF'}"
            settings = ("page_size = 16384", "journal_mode = WAL", synchronous)
            try:
                for statement in ("BEGIN",) if read_only else map("PRAGMA {}".format, settings):
                    self.connection.execute(statement)
            except BaseException:
                self.connection.close()
                raise

    def rows(self, statement: str, *values: object) -> Iterator[Row]:
        with map_sqlite_errors(self.path):
            cursor = self.connection.execute(statement, values)
        return self._fetch(cursor)

    stream = rows

    def _fetch(self, cursor: sqlite3.Cursor) -> Iterator[Row]:
        with map_sqlite_errors(self.path):
            # No `yield from`: that would close the cursor, which fails once the database is closed.
            for row in cursor:  # noqa: UP028
                yield row

    def create(self, tables: Tables, schema: int) -> None:
        for name, declared in tables.items():
            own = [f"{column} {kind}" for column, kind in columns(declared).items() if column != "rowid"]
            self.write(f"CREATE TABLE {'' if schema else 'IF NOT EXISTS '}{name} ({', '.join(own)})")
        if schema:
            self.write(f"PRAGMA user_version = {schema}")

    def schema(self) -> int:
        (version,) = self.row("PRAGMA user_version") or (0,)
        return int(version) or -(self.row("SELECT 1 FROM sqlite_master LIMIT 1") is not None)

    def begin(self) -> None:
        # The state is read, not stored: on a full disk SQLite rolls back by itself.
        if not self.connection.in_transaction:
            with map_sqlite_errors(self.path):
                self.connection.execute("BEGIN IMMEDIATE")

    def write(self, statement: str, *values: object) -> None:
        self.begin()
        with map_sqlite_errors(self.path):
            self.connection.execute(statement, values)

    def insert(self, table: str, declared: str, rows: Sequence[Row]) -> None:
        self.begin()
        with map_sqlite_errors(self.path):
            self.connection.executemany(_insertion(table, declared), rows)

    def commit(self) -> None:
        if self.connection.in_transaction:
            with map_sqlite_errors(self.path):
                self.connection.execute("COMMIT")

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def close(self) -> None:
        self.connection.close()


@cache
def _insertion(table: str, declared: str) -> str:
    names = columns(declared)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


@contextmanager
def map_sqlite_errors(path: object) -> Iterator[None]:
    """Raise JournalDamaged where SQLite finds that the file is damaged."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        raise JournalDamaged(
            f"{path} is damaged, or no journal: {error}; restore a copy of it, or choose another directory"
        ) from error


def _keep_private(path: Path) -> None:
    """Make the file, if there is none. Allow the owner only, whatever the umask was."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite's other files follow its mode
    was_open = False
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):  # another process may remove those of the log
            file = path.with_name(path.name + suffix)
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)
                was_open = True
    if was_open:
        log.warning("%s was readable by other users; now only its owner can read it", path)
