"""The tokens and the devices of a run, in SQLite. Of their secrets it has the SHA-256 only.

    meta     the realm: what keeps one register's proofs apart from another's; the server's URL and pin
    tokens   digest, role, whether it may be used again, until when, labels, the device that used it up
    devices  name, public key, digest of its credential, labels, when it joined and was revoked; the key and
             the digest that it was given when it was last rotated, until it has shown that it has them

Secrets are random numbers of 192 bits, which no table of guesses has: one SHA-256 hides them well enough.
Everything is in memory, too; what another process wrote is read when `refresh` notices (PRAGMA data_version).
"""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgeflock.shared.errors import ConfigError, NameInUse, TooManyDevices, Unauthorized
from edgeflock.shared.identity import (
    NO_PIN,
    Token,
    digest_of,
    join_words,
    proves,
    session_words,
    text_of,
)

IDENTITIES, ADMIN_TOKEN = "identities.sqlite", "admin-token"
"""Files in the run's directory."""

Role = Literal["device", "viewer", "admin"]
Who = Literal["joining", "device", "viewer", "admin"]
"""What a caller may be. Who comes with a device's token may join, and nothing else."""

Labels = Mapping[str, str]

CREDENTIAL = "efd1."
"""What the text of a credential begins with."""

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tokens (
    digest BLOB PRIMARY KEY, role TEXT NOT NULL, reusable INTEGER NOT NULL, made REAL NOT NULL,
    expires REAL, labels TEXT NOT NULL, used_by TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS devices (
    name TEXT PRIMARY KEY, key BLOB NOT NULL, digest BLOB NOT NULL, labels TEXT NOT NULL,
    joined REAL NOT NULL, token BLOB NOT NULL, revoked REAL, rotate INTEGER NOT NULL DEFAULT 0,
    next_key BLOB, next_digest BLOB) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """A token, as far as it is kept."""

    digest: bytes
    role: Role
    reusable: bool
    made: float
    expires: float | None
    """Unix time."""
    labels: Labels
    used_by: str | None
    """The device that used it up."""

    @property
    def id(self) -> str:
        """What people call it by."""
        return self.digest.hex()[:12]


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A device that has joined."""

    name: str
    key: bytes
    digest: bytes
    labels: Labels
    joined: float
    token: bytes
    """Digest of the token that it joined with."""
    revoked: float | None
    rotate: bool
    """Whether it is to get another key and credential."""
    next_key: bytes | None
    next_digest: bytes | None
    """Those that it was given, and has not come with yet."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever asks something of the server."""

    role: Who
    name: str
    """A device's own, or of a token its id."""
    digest: bytes = b""


NOBODY = Caller("viewer", "anybody")
"""In a run that is open."""


@dataclass(frozen=True, slots=True)
class Joined:
    """What a device is told once, when it joins."""

    credential: str
    realm: bytes


class Register:
    """One run's. Methods raise OSError or sqlite3.Error if the disk does."""

    def __init__(self, directory: Path, now: Callable[[], float] = time.time) -> None:
        """Open the file in `directory`, or set it up, for its owner's eyes only."""
        path = directory / IDENTITIES
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite's other files follow its mode
        path.chmod(0o600)
        self._now = now
        self._lock = threading.RLock()
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_TABLES)
        self._db.execute("INSERT OR IGNORE INTO meta VALUES ('realm', ?)", (os.urandom(16),))
        self._version = -1
        self.changes = 0
        """How often others have been found to have written something."""
        self.tokens: dict[bytes, Kept] = {}
        self.devices: dict[str, Enrolled] = {}
        self._credentials: dict[bytes, str] = {}
        """Digest -> the device that it is of."""
        self.realm: bytes = b""
        self.url, self.pin = "", b""
        self.refresh()

    def close(self) -> None:
        self._db.close()

    def refresh(self) -> None:
        """Read what another process has written, if any has."""
        with self._lock:
            version = int(self._db.execute("PRAGMA data_version").fetchone()[0])
            if version != self._version:
                self._version = version
                self.changes += 1
                self._read()

    # What the server asks

    def who(self, bearer: str) -> Caller:
        """Whose secret this is. Raises Unauthorized that says why it opens nothing."""
        if not bearer:
            raise Unauthorized("this run has tokens, and the request shows none: Authorization: Bearer TOKEN")
        digest = digest_of(bearer)
        if digest not in self.tokens and digest not in self._credentials:
            self.refresh()  # it may be just made
        token = self.tokens.get(digest)
        if token is not None:
            if token.expires is not None and token.expires <= self._now():
                raise Unauthorized(f"the token {token.id} has expired; have another one made")
            role: Who = "joining" if token.role == "device" else token.role
            return Caller(role, f"token {token.id}", digest)
        device = self.devices.get(self._credentials.get(digest, ""))
        if device is None:
            raise Unauthorized("the server does not know this token or credential")
        if device.revoked is not None:
            raise Unauthorized(
                f"the credential of {device.name!r} was revoked; join again with another token"
            )
        return Caller("device", device.name, digest)

    def check(self, caller: Caller, name: str, challenge: bytes, pin: bytes, proof: bytes) -> None:
        """Whether a session of `name` proves the key of the caller. Raises Unauthorized.

        With the key that it was given last, the one before it has had its day.
        """
        if not self.holds(caller.name, caller.digest):
            raise Unauthorized(f"the credential of {caller.name!r} was revoked or replaced")
        device = self.devices[caller.name]
        if name != device.name:
            raise Unauthorized(f"this credential is that of {device.name!r}, not of {name!r:.200}")
        fresh = caller.digest == device.next_digest
        key = device.next_key if fresh and device.next_key is not None else device.key
        if not proves(key, session_words(challenge, self.realm, pin or NO_PIN, name), proof):
            raise Unauthorized(f"the proof of {name!r}'s key does not fit")
        if fresh:
            with self._writing(device=name):
                self._db.execute(
                    "UPDATE devices SET key = next_key, digest = next_digest, next_key = NULL, "
                    "next_digest = NULL, rotate = 0 WHERE name = ? AND next_digest = ?",
                    (name, caller.digest),
                )

    def holds(self, name: str, digest: bytes) -> bool:
        """Whether the credential of this digest opens anything still."""
        device = self.devices.get(name)
        return device is not None and device.revoked is None and digest in _digests(device)

    def is_to_rotate(self, name: str, digest: bytes) -> bool:
        """Whether a device that came with it is to get another one."""
        device = self.devices[name]
        return device.rotate and digest == device.digest

    def join(
        self, bearer: str, name: str, key: bytes, proof: bytes, pin: bytes, before: bytes, limit: int
    ) -> Joined:
        """Let a device in that shows a token, or give one another credential that shows its own.

        `proof` signs the joining with its new key; `before`, of one that has joined, with its old one. Raises
        Unauthorized, NameInUse if another device has the name, TooManyDevices beyond `limit`.
        """
        words = join_words(bearer, pin or NO_PIN, key, name)
        if not proves(key, words, proof):
            raise Unauthorized("the proof of the new key does not fit")
        credential = CREDENTIAL + text_of(os.urandom(24))
        with self._writing(device=name, token=digest_of(bearer)):
            self.refresh()  # nobody else writes now: what was revoked this moment is
            caller = self.who(bearer)
            if caller.role == "device":
                self._renew(caller, name, key, words, before, digest_of(credential))
            elif caller.role == "joining":
                self._enrol(self.tokens[caller.digest], name, key, digest_of(credential), limit)
            else:
                raise Unauthorized(f"a token of the role {caller.role} lets no device join")
        return Joined(credential, self.realm)

    def _renew(
        self, caller: Caller, name: str, key: bytes, words: bytes, before: bytes, digest: bytes
    ) -> None:
        device = self.devices[caller.name]
        if name != device.name:
            raise Unauthorized(f"this credential is that of {device.name!r}, not of {name!r:.200}")
        if caller.digest != device.digest or not proves(device.key, words, before):
            raise Unauthorized("the proof of the old key does not fit")
        self._db.execute(
            "UPDATE devices SET next_key = ?, next_digest = ? WHERE name = ?", (key, digest, name)
        )

    def _enrol(self, token: Kept, name: str, key: bytes, digest: bytes, limit: int) -> None:
        device = self.devices.get(name)
        again = device is not None and device.key == key and device.token == token.digest
        if not token.reusable and token.used_by is not None and not again:
            raise Unauthorized(f"the token {token.id} was for one device, which has joined with it")
        if device is not None and device.revoked is None and not again:
            raise NameInUse(
                f"a device {name!r} has joined this run already: give this one another name (--name), or "
                f"have that one revoked (edgeflock device revoke {name})"
            )
        if device is not None and device.revoked is not None and again:
            raise Unauthorized(f"the credential of {name!r} was revoked; join with a new key")
        if device is None and len(self.devices) >= limit:
            raise TooManyDevices(f"the server takes {limit} devices (limits.devices)")
        labels = json.dumps(dict(token.labels))
        self._db.execute(
            "INSERT OR REPLACE INTO devices (name, key, digest, labels, joined, token) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (name, key, digest, labels, self._now(), token.digest),
        )
        self._db.execute("UPDATE tokens SET used_by = ? WHERE digest = ?", (name, token.digest))

    # What operators say

    def listens(self, url: str, pin: bytes) -> None:
        """Where the server is, and with which public key: tokens tell it."""
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('url', ?)", (url.encode(),))
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('pin', ?)", (pin,))

    def create(
        self,
        role: Role,
        *,
        reusable: bool = False,
        seconds: float | None = None,
        labels: Labels | None = None,
        graph: bytes = b"",
    ) -> Token:
        """A new token, which nobody can be told again. Tokens that have expired are forgotten."""
        token = Token.new(self.pin, graph)
        self.keep(token.text, role, reusable=reusable, seconds=seconds, labels=labels)
        return token

    def keep(
        self,
        text: str,
        role: Role,
        *,
        reusable: bool = False,
        seconds: float | None = None,
        labels: Labels | None = None,
    ) -> None:
        """Let `text` be a token."""
        now = self._now()
        row = (
            digest_of(text),
            role,
            reusable,
            now,
            seconds and now + seconds,
            json.dumps(dict(labels or {})),
        )
        with self._writing():
            self._db.execute("DELETE FROM tokens WHERE expires <= ?", (now,))
            self._db.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?, ?, NULL)", row)

    def forget(self, id_: str) -> Kept:
        """A token opens nothing any more. Raises ConfigError if there is none of this id."""
        found = [token for token in self.tokens.values() if token.id == id_]
        if not found:
            raise ConfigError(f"this run has no token {id_!r:.80}; edgeflock token list shows them")
        with self._writing():
            self._db.execute("DELETE FROM tokens WHERE digest = ?", (found[0].digest,))
        return found[0]

    def revoke(self, name: str) -> None:
        """The device's credential opens nothing any more. Raises ConfigError if there is no such device."""
        self._change(name, "revoked = COALESCE(revoked, ?)", self._now())

    def rotate(self, name: str) -> None:
        """The device is to get another key and credential when it next comes. Raises ConfigError."""
        self._change(name, "rotate = ?", 1)

    def label(self, name: str, labels: Labels) -> None:
        """Set labels; an empty value takes one away. Raises ConfigError if there is no such device."""
        kept = {**self._device(name).labels, **labels}
        self._change(name, "labels = ?", json.dumps({key: value for key, value in kept.items() if value}))

    def _change(self, name: str, how: str, value: object) -> None:
        self._device(name)
        with self._writing(device=name):
            self._db.execute(f"UPDATE devices SET {how} WHERE name = ?", (value, name))

    def _device(self, name: str) -> Enrolled:
        self.refresh()
        if name not in self.devices:
            raise ConfigError(f"no device {name!r:.200} has joined this run; edgeflock device list shows all")
        return self.devices[name]

    # The file

    @contextmanager
    def _writing(self, *, device: str | None = None, token: bytes | None = None) -> Iterator[None]:
        """One transaction, on the disk when it is over; then memory is as the file.

        Only this device and this token are read anew, if they are named.
        """
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            if device is None and token is None:
                self._read()
                return
            if device is not None:
                self._take_devices(" WHERE name = ?", device)
            if token is not None:
                self._take_tokens(" WHERE digest = ?", token)

    def _read(self) -> None:
        meta: dict[str, bytes] = dict(self._db.execute("SELECT key, value FROM meta").fetchall())
        self.realm, self.url, self.pin = meta["realm"], meta.get("url", b"").decode(), meta.get("pin", b"")
        self.tokens, self.devices, self._credentials = {}, {}, {}
        self._take_tokens()
        self._take_devices()

    def _take_tokens(self, which: str = "", *values: object) -> None:
        for row in self._db.execute(f"SELECT * FROM tokens{which}", values):
            self.tokens[row[0]] = _token(row)

    def _take_devices(self, which: str = "", *values: object) -> None:
        columns = ", ".join(Enrolled.__match_args__)
        for row in self._db.execute(f"SELECT {columns} FROM devices{which}", values):
            device = _enrolled(row)
            if (before := self.devices.get(device.name)) is not None:
                for digest in _digests(before):
                    self._credentials.pop(digest, None)
            self.devices[device.name] = device
            self._credentials |= dict.fromkeys(_digests(device), device.name)


def _digests(device: Enrolled) -> tuple[bytes, ...]:
    return (device.digest,) if device.next_digest is None else (device.digest, device.next_digest)


def _token(row: tuple[Any, ...]) -> Kept:
    digest, role, reusable, made, expires, labels, used_by = row
    return Kept(digest, role, bool(reusable), made, expires, json.loads(labels), used_by)


def _enrolled(row: tuple[Any, ...]) -> Enrolled:
    name, key, digest, labels, joined, token, revoked, rotate, next_key, next_digest = row
    return Enrolled(
        name, key, digest, json.loads(labels), joined, token, revoked, bool(rotate), next_key, next_digest
    )
