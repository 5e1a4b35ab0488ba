"""What a register lies in: a file beside the run, or the database that servers share who stand by for each
other (journal.url). Statements are the register's own, in words that both have.
"""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from edgeflock.server.ledger import PATIENCE, connected, in_postgres, kept, named, shown, shut

IDENTITIES = "identities.sqlite"
"""In the run's directory."""

ELSEWHERE = "identities.url"
"""Beside it, or in its place: of the database that holds them."""

_PREFIX = "register_"

_LOCK = "pg_advisory_xact_lock(hashtextextended('edgeflock register ' || current_schema(), 0))"


class IdentityDatabase(Protocol):
    """Raises OSError or sqlite3.Error if it does not do as it is told."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any: ...

    def begin(self) -> None:
        """A transaction, which nobody else writes in meanwhile."""

    def changes(self) -> int:
        """Another number once others have written something."""

    def shut(self) -> None:
        """Whoever waits for it, in another thread, waits no more."""

    def close(self) -> None: ...


def database(directory: Path, tables: str) -> IdentityDatabase:
    """That of a run's directory, set up."""
    elsewhere = directory / ELSEWHERE
    if elsewhere.exists():
        return _Shared(elsewhere.read_text().strip(), tables)
    return _File(directory / IDENTITIES, tables)


class _File:
    """For its owner's eyes only."""

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

    def changes(self) -> int:
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def shut(self) -> None:
        """It is not waited for."""

    def close(self) -> None:
        self._db.close()


class _Shared:
    """Tables beside the journal's, under names of their own; `meta` counts what is written."""

    def __init__(self, url: str, tables: str) -> None:
        self._path = shown(url)
        self._connection = connected(url, "edgeflock register")
        self._own = 0
        with named(self._path):  # whoever stops in the middle keeps nobody waiting
            self._connection.execute(f"SET idle_in_transaction_session_timeout = {1000 * PATIENCE}")
        for statement in (f"BEGIN; SELECT {_LOCK}", tables, "COMMIT"):
            with named(self._path):
                self._connection.execute(in_postgres(statement, _PREFIX).encode())
        self.execute("INSERT INTO meta VALUES ('changes', ?) ON CONFLICT DO NOTHING", (b"0",))

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Any:
        with named(self._path):
            return self._connection.execute(
                in_postgres(statement, _PREFIX).encode(),
                [kept(value) for value in values] or None,
                binary=True,
            )

    def begin(self) -> None:
        self.execute("BEGIN")
        self.execute(
            "UPDATE meta SET value = ((convert_from(value, 'UTF8')::bigint + 1)::text)::bytea "
            "WHERE key = 'changes'"
        )
        self._own += 1

    def changes(self) -> int:
        (count,) = self.execute("SELECT value FROM meta WHERE key = 'changes'").fetchone()
        return int(count) - self._own

    def shut(self) -> None:
        shut(self._connection)

    def close(self) -> None:
        self._connection.close()


def shared_file(url: str, name: str, octets: bytes) -> bytes:
    """What the servers that share a database have under a name: `octets`, if nobody had any before."""
    path = shown(url)
    connection = connected(url, "edgeflock keys")
    try:
        with named(path):
            connection.execute(
                f"BEGIN; SELECT {_LOCK}; CREATE TABLE IF NOT EXISTS {_PREFIX}files "
                "(name TEXT PRIMARY KEY, octets BYTEA NOT NULL); COMMIT"
            )
            connection.execute(
                f"INSERT INTO {_PREFIX}files VALUES (%s, %s) ON CONFLICT DO NOTHING", (name, octets)
            )
            found = connection.execute(
                f"SELECT octets FROM {_PREFIX}files WHERE name = %s", (name,), binary=True
            )
            (had,) = found.fetchone() or (octets,)
            return bytes(had)
    finally:
        connection.close()
