"""Keeps the pending update on disk, so that a device killed before its receipt sends it again.

Each device has one file in its folder, DIGEST.update, while an update is computed and not settled.

    SHA-256 of what follows, 32 bytes
    msgpack [1, run, device, layout's digest, the Update as it is sent]

Invalid contents are dropped, since the disk is not trusted. The file is not synced, to reduce wear of a
memory card. So a power failure may lose it.
"""

import hashlib
import logging
from contextlib import suppress
from pathlib import Path

import msgpack

from edgeflock.shared.errors import SessionRefused
from edgeflock.shared.files import write_atomically
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Update

log = logging.getLogger(__name__)

_FORMAT = 1
_DIGEST = hashlib.sha256().digest_size

_OVERHEAD = 1 << 12
"""Upper bound of the bytes in addition to the Update."""


class Spool:
    """The spool of one device at one server."""

    def __init__(self, directory: Path, server: str, device: str) -> None:
        owner = hashlib.sha256(f"{server}\n{device}".encode()).hexdigest()[:32]
        self._path = directory / f"{owner}.update"
        self._device = device
        self.has_failed = False
        """Whether the last update could not be kept."""

    def save(self, run: str, layout: bytes, update: Update) -> None:
        """Write the update atomically. On a write error it logs one warning, and training continues."""
        content = msgpack.packb([_FORMAT, run, self._device, layout, wire.encode(update)])
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, hashlib.sha256(content).digest() + content, durable=False)
            self.has_failed = False
        except OSError as error:
            if not self.has_failed:
                log.warning(
                    "%s cannot be written: %s; updates under way are lost when this device ends (another "
                    "folder: client.directory)",
                    *(self._path, error.strerror or error),
                )
            self.has_failed = True

    def drop(self) -> None:
        """Delete the update: it is settled."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def load(self, run: str, layout: bytes, limit: int) -> Update | None:
        """Return the update that an earlier process computed for the run without a receipt, or None.

        An update of another run, of more than `limit` bytes or incomplete is dropped with a warning.
        """
        try:
            with open(self._path, "rb") as file:
                octets = file.read(_DIGEST + limit + _OVERHEAD + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s cannot be read: %s", self._path, error)
            return None
        try:
            return self._read(octets, run, layout, limit)
        except ValueError as reason:
            log.warning("dropped the update that was under way when this device ended: %s", reason)
            self.drop()
            return None

    def _read(self, octets: bytes, run: str, layout: bytes, limit: int) -> Update:
        """Decode the file. Raises ValueError with the reason if it is not usable."""
        content = octets[_DIGEST:]
        if hashlib.sha256(content).digest() != octets[:_DIGEST] or len(content) > limit + _OVERHEAD:
            raise ValueError(f"{self._path} is incomplete or damaged")
        try:
            found, of_run, device, of_layout, frame = msgpack.unpackb(content)
            update = wire.decode(frame, (Update,))
        except (ValueError, TypeError, msgpack.exceptions.UnpackException, SessionRefused) as error:
            raise ValueError(f"{self._path} holds no update") from error
        if (found, device) != (_FORMAT, self._device):
            raise ValueError(f"{self._path} holds another device's, or another version's")
        if (of_run, of_layout) != (run, layout):
            raise ValueError("it is of another run")
        assert isinstance(update, Update), "nothing else is decoded"
        return update
