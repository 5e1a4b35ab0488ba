"""The register of a run's tokens and devices: who a caller is, who may join, and operators' orders.

Secrets are random numbers of 192 bits, which cannot be guessed, so one SHA-256 hides them well enough.
"""

import json
import math
import os
import time

from edgeflock.server.identity.quarantine import QuarantineTerm, next_quarantine
from edgeflock.server.identity.records import (
    Caller,
    CallerRole,
    EnrolledDevice,
    JoinResult,
    Labels,
    Role,
    StoredOrder,
    StoredToken,
    digests,
)
from edgeflock.server.identity.store import IdentityStore
from edgeflock.shared.errors import ConfigError, NameInUse, Quarantined, TooManyDevices, Unauthorized
from edgeflock.shared.identity import (
    NO_PIN,
    Token,
    digest_of,
    is_valid_key,
    join_message,
    names,
    session_message,
    to_base64url,
    verify,
)

ADMIN_TOKEN = "admin-token"
"""The file's name in the run's directory."""

CREDENTIAL = "efd1."
"""The prefix of a credential's text."""


class Register(IdentityStore):
    """The register of one run. Methods raise OSError or sqlite3.Error if the database fails."""

    # What the server calls

    def identify(self, bearer: str) -> Caller:
        """Return the owner of a secret. Raises Unauthorized with the reason if it is not valid."""
        if not bearer:
            raise Unauthorized("this run has tokens, and the request shows none: Authorization: Bearer TOKEN")
        return self.identify_digest(digest_of(bearer))

    def identify_digest(self, digest: bytes) -> Caller:
        """Return the owner of a secret, by its digest. Raises as `identify` does."""
        if digest not in self.tokens and digest not in self.credentials:
            self.refresh()  # it may be new
        token = self.tokens.get(digest)
        if token is not None:
            if token.expires is not None and token.expires <= self.clock():
                raise Unauthorized(
                    f"the token {token.id} has expired; create another: edgeflock token create"
                )
            role: CallerRole = "joining" if token.role == "device" else token.role
            return Caller(role, f"token {token.id}", digest)
        device = self.devices.get(self.credentials.get(digest, ""))
        if device is None:
            raise Unauthorized("the server does not know this token or credential")
        if device.revoked is not None:
            raise Unauthorized(
                f"the credential of {device.name!r} was revoked; join again with another token"
            )
        return Caller("device", device.name, digest)

    def find_account(self, bearer: str) -> str:
        """The present or past owner of this secret, as far as the register knows. Empty: none."""
        digest = digest_of(bearer)
        token = self.tokens.get(digest)
        return self.credentials.get(digest, "") if token is None else f"token {token.id}"

    def find_quarantine(self, name: str) -> QuarantineTerm | None:
        """A device's quarantine, while it lasts."""
        quarantine = self.quarantines.get(name)
        return quarantine if quarantine is not None and quarantine.until > self.clock() else None

    def check(self, caller: Caller, name: str, challenge: bytes, pin: bytes, proof: bytes) -> None:
        """Whether a session of `name` proves the key of the caller. Raises Unauthorized, Quarantined.

        With the key that it was given last, the one before it has had its day.
        """
        if not self.is_valid_credential(caller.name, caller.digest):
            raise Unauthorized(f"the credential of {caller.name!r} was revoked or replaced")
        device = self.devices[caller.name]
        if name != device.name:
            raise Unauthorized(f"this credential is that of {device.name!r}, not of {name!r:.200}")
        fresh = caller.digest == device.next_digest
        key = device.next_key if fresh and device.next_key is not None else device.key
        if not verify(key, session_message(challenge, self.realm, pin or NO_PIN, name), proof):
            raise Unauthorized(f"the proof of {name!r}'s key does not fit")
        if fresh:
            with self.transaction(device=name):
                self.db.execute(
                    "UPDATE devices SET key = next_key, digest = next_digest, next_key = NULL, "
                    "next_digest = NULL, rotate = 0 WHERE name = ? AND next_digest = ?",
                    (name, caller.digest),
                )
        if (quarantine := self.find_quarantine(name)) is not None:
            raise self._refusal(name, quarantine)

    def quarantine(self, name: str, reason: str) -> Quarantined:
        """Quarantine a device; return the refusal for it."""
        with self.transaction(device=name):
            quarantine = next_quarantine(self.quarantines.get(name), reason, self.clock())
            self.db.execute(
                "INSERT INTO quarantines VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
                "until = excluded.until, seconds = excluded.seconds, because = excluded.because",
                (name, quarantine.until, quarantine.seconds, reason),
            )
            self.quarantines[name] = quarantine
        return self._refusal(name, quarantine)

    def _refusal(self, name: str, quarantine: QuarantineTerm) -> Quarantined:
        until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(quarantine.until))
        refusal = Quarantined(
            f"{name!r} is in quarantine until {until}: {quarantine.reason}; an operator may end it "
            f"(edgeflock device release {name})"
        )
        refusal.seconds = math.ceil(max(0.0, quarantine.until - self.clock()))
        return refusal

    def is_valid_credential(self, name: str, digest: bytes) -> bool:
        """Whether the credential of this digest is still valid."""
        device = self.devices.get(name)
        return device is not None and device.revoked is None and digest in digests(device)

    def is_valid_token(self, digest: bytes) -> bool:
        """Whether the token of this digest is still valid."""
        token = self.tokens.get(digest)
        return token is not None and (token.expires is None or token.expires > self.clock())

    def has_key(self, public: bytes) -> bool:
        """Whether it is the key of a device that is not revoked."""
        return any(one.revoked is None and public in (one.key, one.next_key) for one in self.devices.values())

    def is_to_rotate(self, name: str, digest: bytes) -> bool:
        """Whether a device with this credential is to get another one."""
        device = self.devices[name]
        return device.rotate and digest == device.digest

    def join(
        self, bearer: str, name: str, key: bytes, proof: bytes, pin: bytes, old_proof: bytes, limit: int
    ) -> JoinResult:
        """Enrol a device that shows a token, or renew the credential of one that shows its own.

        `proof` signs the join with the new key, `old_proof` with the old key, if the device has joined.
        Raises Unauthorized, NameInUse if another device has the name, TooManyDevices beyond `limit`.
        """
        words = join_message(bearer, pin or NO_PIN, key, name)
        if not is_valid_key(key):
            raise Unauthorized("the new key is of small order, or not in its one form; make another one")
        if not verify(key, words, proof):
            raise Unauthorized("the proof of the new key does not fit")
        credential = CREDENTIAL + to_base64url(os.urandom(24))
        with self.transaction(device=name, token=digest_of(bearer)):
            self.refresh()  # nobody else writes now, so that all revocations are known
            if (owner := self._revoked_as(key)) is not None:
                raise Unauthorized(f"this key was revoked, as that of {owner!r}; join with a new key")
            if any(key in (one.key, one.next_key) for one in self.devices.values() if one.name != name):
                raise Unauthorized("another device has this key; make a new one, and join with that")
            caller = self.identify(bearer)
            if caller.role == "device":
                self._renew(caller, name, key, words, old_proof, digest_of(credential))
            elif caller.role == "joining":
                self._enrol(self.tokens[caller.digest], name, key, digest_of(credential), limit)
            else:
                raise Unauthorized(f"a token of the role {caller.role} lets no device join")
        return JoinResult(credential, self.realm)

    def _renew(
        self, caller: Caller, name: str, key: bytes, words: bytes, old_proof: bytes, digest: bytes
    ) -> None:
        device = self.devices[caller.name]
        if name != device.name:
            raise Unauthorized(f"this credential is that of {device.name!r}, not of {name!r:.200}")
        if caller.digest != device.digest or not verify(device.key, words, old_proof):
            raise Unauthorized("the proof of the old key does not fit")
        self.db.execute(
            "UPDATE devices SET next_key = ?, next_digest = ? WHERE name = ?", (key, digest, name)
        )

    def _enrol(self, token: StoredToken, name: str, key: bytes, digest: bytes, limit: int) -> None:
        device = self.devices.get(name)
        is_repeat = device is not None and device.key == key and device.token == token.digest
        if not token.reusable and token.used_by is not None and not is_repeat:
            raise Unauthorized(f"the token {token.id} was for one device, which has joined with it")
        if device is not None and device.revoked is None and not is_repeat:
            raise NameInUse(
                f"another device with the name {name} joined; give each its own --name, or have that one "
                f"revoked (edgeflock device revoke {name})"
            )
        if device is None and (other := names.find_lookalike(name, self.devices)) is not None:
            raise NameInUse(
                f"the name {ascii(name)} reads like {other!r}, another device's; choose another --name"
            )
        if device is None and len(self.devices) >= limit:
            raise TooManyDevices(f"the server takes {limit} devices (limits.devices)")
        if device is not None and not is_repeat:  # the key is another, and so may be the device
            for revoked in filter(None, (device.key, device.next_key)):
                self.db.execute("INSERT INTO revoked VALUES (?, ?) ON CONFLICT DO NOTHING", (revoked, name))
            self.db.execute("DELETE FROM quarantines WHERE name = ?", (name,))
            self.quarantines.pop(name, None)
        labels = json.dumps(dict(token.labels))
        self.db.execute("DELETE FROM devices WHERE name = ?", (name,))
        self.db.execute(
            "INSERT INTO devices (name, key, digest, labels, joined, token) VALUES (?, ?, ?, ?, ?, ?)",
            (name, key, digest, labels, self.clock(), token.digest),
        )
        self.db.execute("UPDATE tokens SET used_by = ? WHERE digest = ?", (name, token.digest))

    def _revoked_as(self, key: bytes) -> str | None:
        """The device whose revoked key this is; None if there is none."""
        for device in self.devices.values():
            if device.revoked is not None and key in (device.key, device.next_key):
                return device.name
        found = self.db.execute("SELECT name FROM revoked WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    # What operators call

    def store_address(self, url: str, pin: bytes) -> None:
        """Store the server's URL and its public key's pin, which tokens contain."""
        with self.transaction():
            for key, value in (("url", url.encode()), ("pin", pin)):
                self.db.execute(
                    "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    (key, value),
                )

    def create(
        self,
        role: Role,
        *,
        reusable: bool = False,
        seconds: float | None = None,
        labels: Labels | None = None,
        graph: bytes = b"",
    ) -> Token:
        """Create a token. Its text is not stored, only its digest. Expired tokens are deleted."""
        token = Token.new(self.pin, graph)
        self.store(token.text, role, reusable=reusable, seconds=seconds, labels=labels)
        return token

    def store(
        self,
        text: str,
        role: Role,
        *,
        reusable: bool = False,
        seconds: float | None = None,
        labels: Labels | None = None,
    ) -> None:
        """Store the digest of `text` as a token."""
        now = self.clock()
        row = (
            digest_of(text),
            role,
            reusable,
            now,
            seconds and now + seconds,
            json.dumps(dict(labels or {})),
        )
        with self.transaction():
            self.db.execute("DELETE FROM tokens WHERE expires <= ?", (now,))
            self.db.execute("DELETE FROM tokens WHERE digest = ?", row[:1])
            self.db.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, NULL)", row)

    def delete(self, id_: str) -> StoredToken:
        """Delete a token. Raises ConfigError if there is none of this id."""
        found = [token for token in self.tokens.values() if token.id == id_]
        if not found:
            raise ConfigError(f"this run has no token {id_!r:.80}; edgeflock token list shows them")
        with self.transaction():
            self.db.execute("DELETE FROM tokens WHERE digest = ?", (found[0].digest,))
        return found[0]

    def revoke(self, name: str) -> None:
        """Revoke a device's credential. Raises ConfigError if there is no such device."""
        self._change(name, "revoked = COALESCE(revoked, ?)", self.clock())

    def release(self, name: str) -> None:
        """End and delete a device's quarantine. Raises ConfigError if there is no such device."""
        self._device(name)
        with self.transaction():
            self.db.execute("DELETE FROM quarantines WHERE name = ?", (name,))

    def order(self, name: str, order: StoredOrder | None) -> None:
        """Store an operator's order to a device, joined or not. None deletes it."""
        with self.transaction():
            self.db.execute("DELETE FROM orders WHERE name = ?", (name,))
            if order is not None:
                self.db.execute(
                    "INSERT INTO orders VALUES (?, ?, ?)", (name, int(order.dropped), order.reason)
                )

    def rotate(self, name: str) -> None:
        """Have the device get another key and credential at its next session. Raises ConfigError."""
        self._change(name, "rotate = ?", 1)

    def label(self, name: str, labels: Labels) -> None:
        """Set labels. An empty value removes one. Raises ConfigError if there is no such device."""
        merged = {**self._device(name).labels, **labels}
        self._change(name, "labels = ?", json.dumps({key: value for key, value in merged.items() if value}))

    def _change(self, name: str, assignment: str, value: object) -> None:
        self._device(name)
        with self.transaction(device=name):
            self.db.execute(f"UPDATE devices SET {assignment} WHERE name = ?", (value, name))

    def _device(self, name: str) -> EnrolledDevice:
        self.refresh()
        if name not in self.devices:
            raise ConfigError(f"no device {name!r:.200} has joined this run; edgeflock device list shows all")
        return self.devices[name]
