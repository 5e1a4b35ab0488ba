"""The register's tables, with a copy in memory. Of secrets it holds only the SHA-256.

    meta     the realm, which separates one register's proofs from another's; the server's URL and pin
    tokens   digest, role, whether it may be used again, expiry, labels, the device that used it up
    devices  name, public key, digest of the credential, labels, times of joining and revocation; and the
             key and digest of the latest rotation, until the device proves that it has them
    revoked  revoked public keys of devices whose names other devices have since
    orders   devices that an operator has paused or dropped, and the reason
    quarantines  each device's latest quarantine
    logins   digests of the number in a browser's cookie and of its token, and expiry

`refresh` reads what another process wrote.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeflock.server.identity.databases import database
from edgeflock.server.identity.quarantine import QuarantineTerm
from edgeflock.server.identity.records import (
    EnrolledDevice,
    Login,
    StoredOrder,
    StoredToken,
    device_from_row,
    digests,
    token_from_row,
)

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tokens (
    digest BLOB PRIMARY KEY, role TEXT NOT NULL, reusable INTEGER NOT NULL, made REAL NOT NULL,
    expires REAL, labels TEXT NOT NULL, used_by TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS devices (
    name TEXT PRIMARY KEY, key BLOB NOT NULL, digest BLOB NOT NULL, labels TEXT NOT NULL,
    joined REAL NOT NULL, token BLOB NOT NULL, revoked REAL, rotate INTEGER NOT NULL DEFAULT 0,
    next_key BLOB, next_digest BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revoked (key BLOB PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS orders (
    name TEXT PRIMARY KEY, dropped INTEGER NOT NULL, because TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quarantines (
    name TEXT PRIMARY KEY, until REAL NOT NULL, seconds REAL NOT NULL, because TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS logins (
    number BLOB PRIMARY KEY, token BLOB NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
"""


class IdentityStore:
    """The tables of one run's register. Methods raise OSError or sqlite3.Error if the database fails."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        """Open the tables of `directory`, or set them up."""
        self.clock = clock
        self._lock = threading.RLock()
        self.db = database(directory, _TABLES)
        self.db.execute("INSERT INTO meta VALUES ('realm', ?) ON CONFLICT DO NOTHING", (os.urandom(16),))
        self._version = -1
        self.changes = 0
        """How often `refresh` found that others had written."""
        self.tokens: dict[bytes, StoredToken] = {}
        self.devices: dict[str, EnrolledDevice] = {}
        self.orders: dict[str, StoredOrder] = {}
        self.quarantines: dict[str, QuarantineTerm] = {}
        self.logins: dict[bytes, Login] = {}
        self.credentials: dict[bytes, str] = {}
        """Digest -> the name of its device."""
        self.realm: bytes = b""
        self.url, self.pin = "", b""
        self.refresh()

    def close(self) -> None:
        self.db.close()

    def refresh(self) -> None:
        """Read what another process has written, if anything."""
        with self._lock:
            version = self.db.count_changes()
            if version != self._version:
                self._version = version
                self.changes += 1
                self._read()

    @contextmanager
    def transaction(
        self, *, device: str | None = None, token: bytes | None = None, logins: bool = False
    ) -> Iterator[None]:
        """One transaction, which is durable at its end. Then memory matches the tables.

        If a device and a token, or the `logins`, are named, only those are read again.
        """
        with self._lock:
            self.db.begin()
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                self.db.execute("ROLLBACK")
                raise
            if logins:
                self.logins = self._logins()
                return
            if device is None and token is None:
                self._read()
                return
            for one in self._devices(" WHERE name = ?", device):
                for digest in digests(self.devices[one.name]) if one.name in self.devices else ():
                    self.credentials.pop(digest, None)
                self.devices[one.name] = one
                self.credentials |= dict.fromkeys(digests(one), one.name)
            self.tokens |= {stored.digest: stored for stored in self._tokens(" WHERE digest = ?", token)}

    def _read(self) -> None:
        meta: dict[str, bytes] = dict(self.db.execute("SELECT key, value FROM meta").fetchall())
        self.realm, self.url, self.pin = meta["realm"], meta.get("url", b"").decode(), meta.get("pin", b"")
        orders = self.db.execute("SELECT name, dropped, because FROM orders").fetchall()
        self.orders = {name: StoredOrder(bool(dropped), reason) for name, dropped, reason in orders}
        rows = self.db.execute("SELECT * FROM quarantines").fetchall()
        self.quarantines = {name: QuarantineTerm(*term) for name, *term in rows}
        self.logins = self._logins()
        devices = {device.name: device for device in self._devices()}
        # Another thread may ask in the meantime. It finds the old state or the new one.
        self.credentials = {digest: one.name for one in devices.values() for digest in digests(one)}
        self.tokens, self.devices = {token.digest: token for token in self._tokens()}, devices

    def _logins(self) -> dict[bytes, Login]:
        rows = self.db.execute("SELECT number, token, until FROM logins").fetchall()
        return {number: Login(token, until) for number, token, until in rows}

    def _tokens(self, condition: str = "", *values: object) -> list[StoredToken]:
        return [token_from_row(row) for row in self.db.execute(f"SELECT * FROM tokens{condition}", values)]

    def _devices(self, condition: str = "", *values: object) -> list[EnrolledDevice]:
        columns = ", ".join(EnrolledDevice.__match_args__)
        rows = self.db.execute(f"SELECT {columns} FROM devices{condition}", values)
        return [device_from_row(row) for row in rows]
