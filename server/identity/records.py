"""What the register keeps of tokens and devices, and who a caller is found to be."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["device", "viewer", "admin", "gateway"]
Who = Literal["joining", "device", "viewer", "admin", "gateway"]
"""What a caller may be. Who comes with a device's token may join, and nothing else."""

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoredToken:
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
class Login:
    """A browser that has shown a token."""

    token: bytes
    """Its digest."""
    until: float
    """Unix time."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """What an operator wants of a device until it is resumed."""

    dropped: bool
    """It may not come back; else it waits for its answers."""
    because: str


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


def digests(device: Enrolled) -> tuple[bytes, ...]:
    return (device.digest,) if device.next_digest is None else (device.digest, device.next_digest)


def token_of(row: tuple[Any, ...]) -> StoredToken:
    digest, role, reusable, made, expires, labels, used_by = row
    return StoredToken(digest, role, bool(reusable), made, expires, json.loads(labels), used_by)


def device_of(row: tuple[Any, ...]) -> Enrolled:
    name, key, digest, labels, joined, token, revoked, rotate, next_key, next_digest = row
    return Enrolled(
        name, key, digest, json.loads(labels), joined, token, revoked, bool(rotate), next_key, next_digest
    )
