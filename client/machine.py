"""The default name of a device: its host name and an id that differs between cloned machines."""

import hashlib
import socket
import uuid
from pathlib import Path

_SERIAL = "sys/firmware/devicetree/base/serial-number"
"""Serial number of a Raspberry Pi and other boards."""

_CHARACTERS = 6


def default_name(root: Path = Path("/")) -> str:
    """Return the host name and a short machine id. `root` contains the system's files."""
    return f"{socket.gethostname()[:150]}-{machine_id(root)}"


def machine_id(root: Path) -> str:
    """Return six hexadecimal digits from the board's serial number and its network addresses.

    /etc/machine-id is equal on cloned cards, so it is used only if the others are missing.
    """
    cards = sorted((root / "sys/class/net").glob("*/device/../address"))
    found = [octets for path in (root / _SERIAL, *cards) if (octets := _read(path))]
    octets = b"\n".join(found) or _read(root / "etc/machine-id") or uuid.getnode().to_bytes(6, "big")
    return hashlib.sha256(octets).hexdigest()[:_CHARACTERS]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes().strip(b"\0\n ")
    except OSError:
        return b""
