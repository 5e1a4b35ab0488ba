"""The register of a run's tokens and devices: who a caller is, who may join, and operators' orders.

Secrets are random numbers of 192 bits, which cannot be guessed, so one SHA-256 hides them well enough.
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from edgeflock.server.identity.quarantine import next_quarantine
from edgeflock.server.identity.records import (
    Caller,
    CallerRole,
    EnrolledDevice,
    JoinResult,
    Labels,
    QuarantineTerm,
    Role,
    StoredOrder,
    StoredToken,
    digests,
)
from edgeflock.server.identity.store import IdentityStore
from edgeflock.shared.errors import ConfigError, NameInUse, Quarantined, TooManyDevices, Unauthorized
from edgeflock.shared.files import write_atomically
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
                how = "edgeflock token create" + f" --role {token.role}" * (token.role != "device")
                raise Unauthorized(f"the token {token.id} has expired; create another: {how}")
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
            with self.transaction():
                device = self.devices[name]
                if caller.digest == device.next_digest:
                    used = replace(device, key=key, digest=caller.digest, rotate=False)
                    self.put("devices", name, replace(used, next_key=None, next_digest=None))
        if (quarantine := self.find_quarantine(name)) is not None:
            raise self._refusal(name, quarantine)

    def quarantine(self, name: str, reason: str) -> Quarantined:
        """Quarantine a device; return the refusal for it."""
        with self.transaction():
            quarantine = next_quarantine(self.quarantines.get(name), reason, self.clock())
            self.put("quarantines", name, quarantine)
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
        devices = list(self.devices.values())
        return any(one.revoked is None and public in (one.key, one.next_key) for one in devices)

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
        with self.transaction():  # nobody else writes now, so that all revocations are known
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
        self.put("devices", name, replace(device, next_key=key, next_digest=digest))

    def _enrol(self, token: StoredToken, name: str, key: bytes, digest: bytes, limit: int) -> None:
        device = self.devices.get(name)
        is_repeat = device is not None and device.key == key and device.token == token.digest
        if not token.reusable and token.used_by is not None and not is_repeat:
            raise Unauthorized(f"token {token.id} was for one device; make another: edgeflock token create")
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
            raise TooManyDevices(f"the server takes no more devices: limits.devices = {limit}")
        if device is not None and not is_repeat:  # the key is another, and so may be the device
            for revoked in filter(None, (device.key, device.next_key)):
                self.put("revoked", revoked, self.revoked.get(revoked, name))
            self.remove("quarantines", name)
        joined = EnrolledDevice(name, key, digest, token.labels, self.clock(), token.digest)
        self.put("devices", name, joined)
        self.put("tokens", token.digest, replace(token, used_by=name))

    def _revoked_as(self, key: bytes) -> str | None:
        """The device whose revoked key this is; None if there is none."""
        for device in self.devices.values():
            if device.revoked is not None and key in (device.key, device.next_key):
                return device.name
        return self.revoked.get(key)

    # What operators call

    def store_address(self, url: str, pin: bytes) -> None:
        """Store the server's URL and its public key's pin, which tokens contain."""
        with self.transaction():
            self.put("meta", "url", url.encode())
            self.put("meta", "pin", pin)

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
        made = Token.new(self.pin, graph)
        now, digest = self.clock(), digest_of(made.text)
        expires = None if seconds is None else now + seconds
        with self.transaction():
            for token in self.tokens.values():
                if token.expires is not None and token.expires <= now:
                    self.remove("tokens", token.digest)
            self.put("tokens", digest, StoredToken(digest, role, reusable, now, expires, labels or {}, None))
        return made

    def delete(self, id_: str) -> StoredToken:
        """Delete a token. Raises ConfigError if there is none of this id."""
        found = [token for token in list(self.tokens.values()) if token.id == id_]
        if not found:
            raise ConfigError(f"this run has no token {id_!r:.80}; edgeflock token list shows them")
        with self.transaction():
            self.remove("tokens", found[0].digest)
        return found[0]

    def revoke(self, name: str) -> None:
        """Revoke a device's credential. Raises ConfigError if there is no such device."""
        with self._changing(name) as device:
            if device.revoked is None:
                self.put("devices", name, replace(device, revoked=self.clock()))

    def release(self, name: str) -> bool:
        """End and forget a quarantine. Return whether it lasted. Raises ConfigError for an unknown device."""
        with self._changing(name):
            if is_held := self.find_quarantine(name) is not None:
                self.remove("quarantines", name)
        return is_held

    def order(self, name: str, order: StoredOrder | None) -> None:
        """Store an operator's order to a device, joined or not. None deletes it."""
        with self.transaction():
            if order is None:
                self.remove("orders", name)
            else:
                self.put("orders", name, order)

    def rotate(self, name: str) -> None:
        """Have the device get another key and credential at its next session. Raises ConfigError."""
        with self._changing(name) as device:
            self.put("devices", name, replace(device, rotate=True))

    def label(self, name: str, labels: Labels) -> None:
        """Set labels. An empty value removes one. Raises ConfigError if there is no such device."""
        with self._changing(name) as device:
            merged = {**device.labels, **labels}
            kept = {key: value for key, value in merged.items() if value}
            self.put("devices", name, replace(device, labels=kept))

    @contextmanager
    def _changing(self, name: str) -> Iterator[EnrolledDevice]:
        """A transaction that changes a device. Raises ConfigError if there is no such device."""
        with self.transaction():
            if name not in self.devices:
                raise ConfigError(
                    f"no device {name!r:.200} has joined this run; edgeflock device list shows all"
                )
            yield self.devices[name]


def write_admin_token(register: Register, directory: Path) -> None:
    """Write a token for the operator into a private file of `directory`, unless it holds a valid one."""
    path = directory / ADMIN_TOKEN
    token = path.read_text().strip() if path.exists() else ""
    try:
        if register.identify(token).role == "admin" and Token.parse(token).pin == register.pin:
            return
    except (Unauthorized, ConfigError):
        pass
    write_atomically(path, f"{register.create('admin', reusable=True).text}\n".encode())
