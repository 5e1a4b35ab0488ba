"""Tokens: a secret that grants access, and the data that identify its server, in one line of text.

    ef1.SECRET.PIN          ef1.SECRET.PIN.GRAPH

Each part is base64url without padding. SECRET has 24 bytes; PIN is the server's public key (pins.py, 32
bytes) or empty; GRAPH is the digest of the one graph to train (32 bytes). Servers identify a token by the
SHA-256 of its text.
"""

import base64
import binascii
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from edgeflock.shared.errors import ConfigError

PREFIX = "ef1"

SECRET_BYTES = 24
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Token:
    """The content of a token."""

    secret: bytes
    pin: bytes = b""
    """The pin of the server's public key; empty: the system's certificate authorities, or no TLS."""
    graph: bytes = b""
    """SHA-256 of the one graph to train; empty: any."""

    @classmethod
    def new(cls, pin: bytes = b"", graph: bytes = b"") -> "Token":
        return cls(secrets.token_bytes(SECRET_BYTES), pin, graph)

    @classmethod
    def parse(cls, text: str) -> "Token":
        """Parse a token. Raises ConfigError that describes the problem without the secret."""
        prefix, *parts = text.split(".")
        if prefix != PREFIX:
            if prefix[:2] == "ef" and prefix[2:].isdecimal():
                raise ConfigError(
                    f"the token has version {prefix[2:]:.9}, and this Edgeflock reads version {PREFIX[2:]}"
                )
            raise ConfigError(
                f"not a token: copy the text that the server printed, which begins with {PREFIX}."
            )
        if len(parts) not in (2, 3):
            raise ConfigError(
                f"no whole token: {len(parts)} of its parts follow {PREFIX}, and 2 or 3 should; copy all "
                "of it, also a dot at its end"
            )
        token = cls(*(_part(name, part) for name, part in zip(_PARTS, parts, strict=False)))
        if len(parts) == 3 and not token.graph:
            raise ConfigError("no whole token: its graph is empty")
        return token

    @property
    def text(self) -> str:
        parts = (self.secret, self.pin, self.graph) if self.graph else (self.secret, self.pin)
        return ".".join((PREFIX, *map(to_base64url, parts)))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the text, by which a server identifies the token."""
        return digest_of(self.text)


_PARTS = {"secret": (SECRET_BYTES,), "pin": (0, _DIGEST_BYTES), "graph": (0, _DIGEST_BYTES)}
"""The valid lengths of each part, in bytes."""


def training_page(server: str, token: str) -> str:
    """The address at which a browser takes part. Browsers send nobody what follows the #."""
    return f"{server.rstrip('/')}/train#token={token}"


def secret_of(headers: Mapping[str, str]) -> str:
    """The secret of the Authorization header. The scheme ignores case (RFC 9110, section 11.1)."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip(" ") if scheme.lower() == "bearer" else ""


def digest_of(text: str) -> bytes:
    """SHA-256 of a header's content, which may have any byte."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def to_base64url(octets: bytes) -> str:
    """Encode base64url without padding."""
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Decode the octets whose `text_of` is this text. Raises ValueError."""
    try:
        octets = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("not base64url") from error
    if to_base64url(octets) != text:
        raise ValueError("not base64url in its one form")
    return octets


def _part(name: str, text: str) -> bytes:
    try:
        octets = from_base64url(text)
    except ValueError:
        raise ConfigError(f"no whole token: its {name} is not base64url; copy it anew") from None
    if len(octets) not in _PARTS[name]:
        wanted = " or ".join(map(str, _PARTS[name]))
        raise ConfigError(
            f"no whole token: its {name} has {len(octets)} bytes and should have {wanted}; copy it anew"
        )
    return octets
