"""A register's database: a SQLite file, or the PostgreSQL database that servers share (journal.url)."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from edgeflock.server.ledger import TIMEOUT, connect, interrupt, map_errors, normalize, redact, to_postgres

IDENTITIES = "identities.sqlite"
"""The file's name in the run's directory."""

URL_FILE = "identities.url"
"""A file in the run's directory with the URL of the database that holds the identities instead."""

_PREFIX = "register_"

_LOCK = "pg_advisory_xact_lock(hashtextextended('edgeflock register ' || current_schema(), 0))"


class IdentityDatabase(Protocol):
    """A register's database. Methods raise OSError or sqlite3.Error if it fails."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any: ...

    def begin(self) -> None:
        """Begin a transaction in which nobody else writes."""

    def count_changes(self) -> int:
        """A number that changes once others have written something."""

    def shut(self) -> None:
        """End waits for the database in other threads."""

    def close(self) -> None: ...


def database(directory: Path, tables: str) -> IdentityDatabase:
    """Open and set up the register's database of a run's directory."""
    url_file = directory / URL_FILE
    if url_file.exists():
        return _SharedDatabase(url_file.read_text().strip(), tables)
    return _FileDatabase(directory / IDENTITIES, tables)


class _FileDatabase:
    """A SQLite file that only its owner may read."""

    def __init__(self, path: Path, tables: str) -> None:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite's other files follow its mode
        path.chmod(0o600)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(tables)

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> sqlite3.Cursor:
        return self._db.execute(statement, values)

    def begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def count_changes(self) -> int:
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def shut(self) -> None:
        """Do nothing: nobody waits for a file."""

    def close(self) -> None:
        self._db.close()


class _SharedDatabase:
    """Tables in the journal's database, with a prefix of their own. `meta` counts what is written."""

    def __init__(self, url: str, tables: str) -> None:
        self._path = redact(url)
        self._connection = connect(url, "edgeflock register")
        self._own_changes = 0
        with map_errors(self._path):  # a process that stops in the middle blocks no other
            self._connection.execute(f"SET idle_in_transaction_session_timeout = {1000 * TIMEOUT}")
        for statement in (f"BEGIN; SELECT {_LOCK}", tables, "COMMIT"):
            with map_errors(self._path):
                self._connection.execute(to_postgres(statement, _PREFIX).encode())
        self.execute("INSERT INTO meta VALUES ('changes', ?) ON CONFLICT DO NOTHING", (b"0",))

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        with map_errors(self._path):
            return self._connection.execute(
                to_postgres(statement, _PREFIX).encode(),
                [normalize(value) for value in values] or None,
                binary=True,
            )

    def begin(self) -> None:
        self.execute("BEGIN")
        self.execute(
            "UPDATE meta SET value = ((convert_from(value, 'UTF8')::bigint + 1)::text)::bytea "
            "WHERE key = 'changes'"
        )
        self._own_changes += 1

    def count_changes(self) -> int:
        (count,) = self.execute("SELECT value FROM meta WHERE key = 'changes'").fetchone()
        return int(count) - self._own_changes

    def shut(self) -> None:
        interrupt(self._connection)

    def close(self) -> None:
        self._connection.close()


def shared_file(url: str, name: str, octets: bytes) -> bytes:
    """The content of a file that the servers of a database share: `octets`, unless one is stored already."""
    path = redact(url)
    connection = connect(url, "edgeflock keys")
    try:
        with map_errors(path):
            connection.execute(
                f"BEGIN; SELECT {_LOCK}; CREATE TABLE IF NOT EXISTS {_PREFIX}files "
                "(name TEXT PRIMARY KEY, octets BYTEA NOT NULL); COMMIT"
            )
            connection.execute(
                f"INSERT INTO {_PREFIX}files VALUES (%s, %s) ON CONFLICT DO NOTHING", (name, octets)
            )
            rows = connection.execute(
                f"SELECT octets FROM {_PREFIX}files WHERE name = %s", (name,), binary=True
            )
            (stored,) = rows.fetchone() or (octets,)
            return bytes(stored)
    finally:
        connection.close()
