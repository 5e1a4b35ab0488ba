"""The register's records of tokens and devices, and the caller that it identifies."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

Role = Literal["device", "viewer", "admin", "gateway"]
CallerRole = Literal["joining", "device", "viewer", "admin", "gateway"]
"""A caller's role. A caller with a device's token may join, and nothing else."""

Labels = Mapping[str, str]

Record = TypeVar("Record")

_CODINGS: Mapping[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    bool: (int, bool),
    Labels: (lambda labels: json.dumps(dict(labels)), json.loads),
}
"""The type of a field -> (what makes a column of it, what makes it of a column)."""

_PLAIN = (lambda value: value, lambda value: value)


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
    name: str
    key: bytes
    digest: bytes
    labels: Labels
    joined: float
    token: bytes
    """Digest of the token that it joined with."""
    revoked: float | None = None
    rotate: bool = False
    """Whether the device is to get another key and credential."""
    next_key: bytes | None = None
    next_digest: bytes | None = None
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


@dataclass(frozen=True, slots=True)
class QuarantineTerm:
    """A device's latest quarantine, which may be over."""

    until: float
    """Unix time."""
    seconds: float
    reason: str


def digests(device: EnrolledDevice) -> tuple[bytes, ...]:
    return (device.digest,) if device.next_digest is None else (device.digest, device.next_digest)


def to_row(record: Any) -> tuple[Any, ...]:
    """The values of a record's fields, as they are stored."""
    codings = [_CODINGS.get(field.type, _PLAIN) for field in fields(record)]
    values = [getattr(record, field.name) for field in fields(record)]
    return tuple(encode(value) for (encode, _), value in zip(codings, values, strict=True))


def from_row(kind: type[Record], row: tuple[Any, ...]) -> Record:
    """The record of a row, which may begin with a key that is no field of it."""
    codings = [_CODINGS.get(field.type, _PLAIN) for field in fields(kind)]  # type: ignore[arg-type]  # see _KINDS
    values = row[len(row) - len(codings) :]
    return kind(*(decode(value) for (_, decode), value in zip(codings, values, strict=True)))
