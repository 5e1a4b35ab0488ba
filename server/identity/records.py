"""The register's records of tokens and devices, and the caller that it identifies."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["device", "viewer", "admin", "gateway"]
CallerRole = Literal["joining", "device", "viewer", "admin", "gateway"]
"""A caller's role. A caller with a device's token may join, and nothing else."""

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token as the register stores it."""

    digest: bytes
    role: Role
    reusable: bool
    created: float
    expires: float | None
    """Unix time."""
    labels: Labels
    used_by: str | None
    """The device that used it up."""

    @property
    def id(self) -> str:
        """The identifier that people use."""
        return self.digest.hex()[:12]


@dataclass(frozen=True, slots=True)
class EnrolledDevice:
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
    """Whether the device is to get another key and credential."""
    next_key: bytes | None
    next_digest: bytes | None
    """The new key and credential's digest, which the device has not used yet."""


@dataclass(frozen=True, slots=True)
class Login:
    """A browser that has shown a token."""

    token: bytes
    """Its digest."""
    until: float
    """Unix time."""


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """An operator's order to a device. It holds until the device is resumed."""

    dropped: bool
    """Whether the device may not come back. Otherwise it waits for its answers."""
    reason: str


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request to the server."""

    role: CallerRole
    name: str
    """A device's name, or a token's id."""
    digest: bytes = b""


NOBODY = Caller("viewer", "anybody")
"""The caller without a secret, in an open run."""


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer to a device that joins. It is given once."""

    credential: str
    realm: bytes


def digests(device: EnrolledDevice) -> tuple[bytes, ...]:
    return (device.digest,) if device.next_digest is None else (device.digest, device.next_digest)


def token_from_row(row: tuple[Any, ...]) -> StoredToken:
    digest, role, reusable, created, expires, labels, used_by = row
    return StoredToken(digest, role, bool(reusable), created, expires, json.loads(labels), used_by)


def device_from_row(row: tuple[Any, ...]) -> EnrolledDevice:
    name, key, digest, labels, joined, token, revoked, rotate, next_key, next_digest = row
    return EnrolledDevice(
        name, key, digest, json.loads(labels), joined, token, revoked, bool(rotate), next_key, next_digest
    )
