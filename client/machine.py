"""What a device is called if nobody says: its host name, and what tells this machine from its clones."""

import hashlib
import socket
import uuid
from pathlib import Path

_SERIAL = "sys/firmware/devicetree/base/serial-number"
"""Of a Raspberry Pi and other boards."""

_CHARACTERS = 6


def default_name(root: Path = Path("/")) -> str:
    """The host's name and a short machine id. `root` is where its files are looked for."""
    return f"{socket.gethostname()[:150]}-{machine_id(root)}"


def machine_id(root: Path) -> str:
    """Six hexadecimal digits, of the board's serial number and the addresses of its network cards.

    Those of /etc/machine-id come along with a cloned card, so they count only where there is nothing else.
    """
    cards = sorted((root / "sys/class/net").glob("*/device/../address"))
    found = [octets for path in (root / _SERIAL, *cards) if (octets := _read(path))]
    known = b"\n".join(found) or _read(root / "etc/machine-id") or uuid.getnode().to_bytes(6, "big")
    return hashlib.sha256(known).hexdigest()[:_CHARACTERS]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes().strip(b"\0\n ")
    except OSError:
        return b""
