"""The identity file of a device that has joined: its key, its credential and its servers' URLs."""

import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yarl import URL

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.files import write_atomically
from edgeflock.shared.identity import from_base64url, to_base64url
from edgeflock.shared.identity.proofs import KEY_BYTES

if TYPE_CHECKING:
    from edgeflock.shared.settings.client import ClientSettings


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The identity of one device at one server."""

    server: str
    name: str
    credential: str
    key: bytes
    """Private Ed25519 key."""
    realm: bytes
    """Identifies the server's register of devices. The server sends it when the device joins."""
    pin: bytes = b""
    """Pin of the server's public key; empty: no check."""
    graph: bytes = b""
    """SHA-256 of the one graph to train; empty: any."""
    certificate: str = ""
    """Certificate of the key, in PEM; empty: the server issued none."""
    insecure: bool = False
    """Whether plain HTTP is allowed."""


def vouched_in(path: str) -> frozenset[bytes]:
    """Return the public identities in a file of client.vouched: one a line, as hex; empty without a file.

    Raises ConfigError.
    """
    if not path:
        return frozenset()
    try:
        lines = [line.partition("#")[0].strip() for line in Path(path).read_text().splitlines()]
        found = frozenset(bytes.fromhex(line) for line in lines if line)
    except (OSError, ValueError) as error:
        raise ConfigError(f"client.vouched = {path!r} cannot be read: {error}") from error
    if not found or any(len(one) != KEY_BYTES for one in found):
        raise ConfigError(
            f"client.vouched = {path!r}: each line must be an identity of 64 hexadecimal digits, as a device "
            "logs it when it takes part in a private run"
        )
    return found


_RUN = re.compile(r"/v1/runs/([A-Za-z0-9][A-Za-z0-9._-]{0,63})/?$")

_BYTES = ("key", "realm", "pin", "graph")


def default_path(run: str = "") -> Path:
    """Return the default path of the identity file of `edgeflock client join`.

    A server of several runs has one for each `run` by its name.
    """
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "edgeflock"
    return folder / (f"identity-{run}.json" if run else "identity.json")


def run_in(server: str) -> str:
    """Return the run that an address of a server of several runs names; empty: none."""
    found = _RUN.search(server)
    return found[1] if found else ""


def joined_runs() -> list[str]:
    """Return the runs of servers of several that this device has joined."""
    found = default_path().parent.glob("identity-*.json")
    return sorted(path.stem.removeprefix("identity-") for path in found)


def identity_of(settings: "ClientSettings") -> tuple[ClientIdentity | None, Path]:
    """Return (the identity, or None if the device has not joined; its path). Raises ConfigError.

    The user's default file applies only to its own server. A file that the settings name must match the
    server and the name in the settings.
    """
    path = Path(settings.identity) if settings.identity else default_path()
    if not settings.identity and not path.exists():
        return None, path
    identity = load_identity(path)
    named = "server" in settings.model_fields_set
    if named and urls_of(settings.server) != urls_of(identity.server):
        if not settings.identity:
            return None, path
        raise ConfigError(
            f"client.identity = {str(path)!r} is for {identity.server}, and client.server is "
            f"{settings.server}: leave one of them out"
        )
    if settings.name not in ("", identity.name):
        raise ConfigError(
            f"client.name = {settings.name!r}, but this device joined as {identity.name!r} "
            f"(client.identity = {str(path)!r}): leave client.name out, or join anew under that name"
        )
    if settings.graph_digest and identity.graph and settings.graph_digest != identity.graph.hex():
        raise ConfigError("client.graph_digest is not the one of the token that this device joined with")
    return identity, path


def save_identity(identity: ClientIdentity, path: Path) -> None:
    """Write the file atomically, readable by its owner only. Raises ConfigError."""
    fields = {name: getattr(identity, name) for name in ClientIdentity.__match_args__}
    text = json.dumps(
        {name: to_base64url(value) if name in _BYTES else value for name, value in fields.items()}
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, f"{text}\n".encode())
    except OSError as error:
        raise ConfigError(f"client.identity = {str(path)!r} cannot be written: {error.strerror}") from error


def load_identity(path: Path) -> ClientIdentity:
    """Read an identity file. Raises ConfigError if it is invalid or readable by other users."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"client.identity = {str(path)!r} cannot be read: {error}; "
            "edgeflock client join URL TOKEN makes it"
        ) from error
    if mode & 0o077:
        raise ConfigError(
            f"client.identity = {str(path)!r} can be read by others (mode {mode:o}): chmod 600 {path}, "
            "and if others are on this machine, have it replaced (edgeflock device rotate)"
        )
    try:
        fields: dict[str, Any] = json.loads(text)
        fields |= {name: from_base64url(fields[name]) for name in _BYTES if name in fields}
        return ClientIdentity(**fields)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"client.identity = {str(path)!r} holds no identity: remove it and join anew"
        ) from error


def urls_of(servers: str) -> list[URL]:
    """Parse one URL, or several separated by commas, all of one scheme. Raises ConfigError."""
    urls = [url_of(server.strip()) for server in servers.split(",")]
    if len({url.scheme for url in urls}) > 1:
        raise ConfigError(f"client.server {servers!r} must be all https:// or all http://")
    return urls


def url_of(server: str) -> URL:
    """Parse one URL. Raises ConfigError if it is not a server's URL."""
    try:
        url = URL(server)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"client.server {server!r} must be a URL such as https://192.0.2.1:8470")
    return url
