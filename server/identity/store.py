"""The register's tables, with a copy in memory. Of secrets it holds only the SHA-256.

    meta     the realm, which separates one register's proofs from another's; the server's URL and pin
    tokens   digest, role, whether it may be used again, expiry, labels, the device that used it up
    devices  name, public key, digest of the credential, labels, times of joining and revocation; and the
             key and digest of the latest rotation, until the device proves that it has them
    revoked  revoked public keys of devices whose names other devices have since
    orders   devices that an operator has paused or dropped, and the reason
    quarantines  each device's latest quarantine
    logins   digests of the number in a browser's cookie and of its token, and expiry

They are in a SQLite file, or in the PostgreSQL database that servers share (journal.url). `refresh` reads
what another process wrote.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from edgeflock.server.database import URL_FILE, Database, PostgresDatabase, SqliteDatabase, Tables, columns
from edgeflock.server.identity.records import (
    EnrolledDevice,
    Login,
    QuarantineTerm,
    StoredOrder,
    StoredToken,
    digests,
    from_row,
    to_row,
)

IDENTITIES = "identities.sqlite"
"""The file's name in the run's directory."""

_TABLES: Tables = {
    "meta": "key TEXT PRIMARY KEY, value BLOB NOT NULL",
    "tokens": "digest BLOB PRIMARY KEY, role TEXT NOT NULL, reusable INTEGER NOT NULL, made REAL NOT NULL, "
    "expires REAL, labels TEXT NOT NULL, used_by TEXT",
    "devices": "name TEXT PRIMARY KEY, key BLOB NOT NULL, digest BLOB NOT NULL, labels TEXT NOT NULL, "
    "joined REAL NOT NULL, token BLOB NOT NULL, revoked REAL, rotate INTEGER NOT NULL DEFAULT 0, "
    "next_key BLOB, next_digest BLOB",
    "revoked": "key BLOB PRIMARY KEY, name TEXT NOT NULL",
    "orders": "name TEXT PRIMARY KEY, dropped INTEGER NOT NULL, because TEXT NOT NULL",
    "quarantines": "name TEXT PRIMARY KEY, until REAL NOT NULL, seconds REAL NOT NULL, because TEXT NOT NULL",
    "logins": "number BLOB PRIMARY KEY, token BLOB NOT NULL, until REAL NOT NULL",
}
"""The first column of each is its key."""

_PREFIX = "register_"
"""Comes before the names of the tables in a database, which has the journal's, too."""

_TIMEOUT = 5
"""Seconds until PostgreSQL ends a process that stops in the middle of a transaction."""

_KINDS = {
    "tokens": StoredToken,
    "devices": EnrolledDevice,
    "orders": StoredOrder,
    "quarantines": QuarantineTerm,
    "logins": Login,
}
"""The tables whose rows are records. Those of the others are a key and a value."""


class IdentityStore:
    """The tables of one run's register. Methods raise OSError or sqlite3.Error if the database fails.

    A transaction changes the tables in place at its end. Outside of one, iterate over a copy, since another
    thread may change the table.
    """

    meta: dict[str, bytes]
    tokens: dict[bytes, StoredToken]
    devices: dict[str, EnrolledDevice]
    revoked: dict[bytes, str]
    orders: dict[str, StoredOrder]
    quarantines: dict[str, QuarantineTerm]
    logins: dict[bytes, Login]
    credentials: dict[bytes, str]
    """Digest -> the name of its device."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        """Open the tables of `directory`, or set them up."""
        self.clock = clock
        self._lock = threading.RLock()
        url_file = directory / URL_FILE
        self._prefix = ""
        if url_file.exists():
            self._prefix = _PREFIX
            shared = PostgresDatabase(url_file.read_text().strip(), "edgeflock register")
            shared.set_timeout("idle_in_transaction_session", _TIMEOUT)
            self.db: Database = shared
        else:
            self.db = SqliteDatabase(directory / IDENTITIES)
        self._pending: dict[tuple[str, Any], Any] = {}
        """(Table, key) -> the record that the open transaction stores there; None: it deletes that."""
        self._version: int | None = None
        self._own_changes = 0
        self.changes = 0
        """How often `refresh` found that others had written."""
        try:
            self._set_up()
            self.refresh()
        except BaseException:
            self.db.close()
            raise

    def _set_up(self) -> None:
        """Create the tables, unless they are there."""
        self.db.create({self._prefix + table: declared for table, declared in _TABLES.items()}, 0)
        for key, value in {"realm": os.urandom(16), "changes": b"0"}.items():
            self.db.write(f"INSERT INTO {self._prefix}meta VALUES (?, ?) ON CONFLICT DO NOTHING", key, value)
        self.db.commit()

    @property
    def realm(self) -> bytes:
        return self.meta["realm"]

    @property
    def url(self) -> str:
        return self.meta.get("url", b"").decode()

    @property
    def pin(self) -> bytes:
        return self.meta.get("pin", b"")

    def close(self) -> None:
        self.db.close()

    def refresh(self) -> None:
        """Read what another process has written, if anything."""
        with self._lock:
            version = self._count_changes()
            if version != self._version:
                self._version = version
                self.changes += 1
                for table, declared in _TABLES.items():
                    query = f"SELECT {', '.join(columns(declared))} FROM {self._prefix}{table}"
                    self._replace(table, {row[0]: _record(table, row) for row in self.db.rows(query)})

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction, in which nobody else writes, and which is durable at its end.

        All that was written before is known in it. What it writes is known after it.
        """
        with self._lock:
            self._pending.clear()
            self._own_changes += 1
            try:
                self.db.begin()
                if self._prefix:  # SQLite counts by itself; here this also keeps others from writing
                    self.db.write(
                        f"UPDATE {self._prefix}meta SET value = "
                        "((convert_from(value, 'UTF8')::bigint + 1)::text)::bytea WHERE key = 'changes'"
                    )
                self.refresh()
                yield
                self.db.commit()
            except BaseException:
                self._own_changes -= 1
                self.db.rollback()
                raise
            for (table, key), value in self._pending.items():
                self._change(getattr(self, table), key, value)

    def put(self, table: str, key: bytes | str, value: object) -> None:
        """Store a record in the open transaction, in the place of the one that has its key."""
        self.remove(table, key)
        values = to_row(value) if table in _KINDS else (value,)
        row = values if values[0] == key else (key, *values)
        self.db.insert(self._prefix + table, _TABLES[table], [row])
        self._pending[table, key] = value

    def remove(self, table: str, key: bytes | str) -> None:
        """Delete a record in the open transaction, if there is one of this key."""
        (name, *_) = columns(_TABLES[table])
        self.db.write(f"DELETE FROM {self._prefix}{table} WHERE {name} = ?", key)
        self._pending[table, key] = None

    def _count_changes(self) -> int:
        """A number that changes once others have written something."""
        if not self._prefix:
            return int((self.db.row("PRAGMA data_version") or (0,))[0])
        (count,) = self.db.row(f"SELECT value FROM {self._prefix}meta WHERE key = 'changes'") or (0,)
        return int(count) - self._own_changes

    def _change(self, records: dict[Any, Any], key: bytes | str, value: object) -> None:
        """Store a record in a table in memory; None: delete the one of this key."""
        before = records.pop(key, None) if value is None else records.get(key)
        if value is not None:
            records[key] = value
        if records is self.devices:
            new = set(digests(value)) if isinstance(value, EnrolledDevice) else set()
            self.credentials.update(dict.fromkeys(new, str(key)))
            for digest in set() if before is None else set(digests(before)) - new:
                self.credentials.pop(digest, None)

    def _replace(self, table: str, records: dict[Any, Any]) -> None:
        setattr(self, table, records)
        if table == "devices":
            self.credentials = {digest: one.name for one in self.devices.values() for digest in digests(one)}


def _record(table: str, row: tuple[Any, ...]) -> object:
    return from_row(_KINDS[table], row) if table in _KINDS else row[1]


def shared_file(url: str, name: str, octets: bytes) -> bytes:
    """The content of a file that the servers of a database share: `octets`, unless one is stored already."""
    with closing(PostgresDatabase(url, "edgeflock keys")) as db:
        db.create({f"{_PREFIX}files": "name TEXT PRIMARY KEY, octets BLOB NOT NULL"}, 0)
        db.write(f"INSERT INTO {_PREFIX}files VALUES (?, ?) ON CONFLICT DO NOTHING", name, octets)
        (stored,) = db.row(f"SELECT octets FROM {_PREFIX}files WHERE name = ?", name) or (octets,)
        db.commit()
        return bytes(stored)
