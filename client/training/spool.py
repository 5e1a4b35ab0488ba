"""Files of a device that outlast its process. The spool keeps the pending update, which is then sent again.

Each device has one file of a kind in its folder, DIGEST.update while an update is computed and not settled:

    SHA-256 of what follows, 32 bytes
    msgpack [1, run, device, field, ...]; of an update: the layout's digest, and the Update as it is sent

Invalid contents are dropped, since the disk is not trusted.
"""

import hashlib
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

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


class DeviceFile:
    """A file of one device at one server."""

    def __init__(self, directory: Path, server: str, device: str, kind: str, loss: str) -> None:
        """`kind` is the end of the file's name. `loss` says what is lost if it cannot be written."""
        owner = hashlib.sha256(f"{server}\n{device}".encode()).hexdigest()[:32]
        self.path = directory / f"{owner}.{kind}"
        self._device, self._loss = device, loss
        self.has_failed = False
        """Whether the last content could not be written."""

    def write(self, run: str, *fields: object, durable: bool = False) -> None:
        """Write the fields atomically. On a disk error it logs one warning, and training continues.

        Unless it is `durable`, which wears a memory card, a power failure may lose it.
        """
        content = msgpack.packb([_FORMAT, run, self._device, *fields])
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, hashlib.sha256(content).digest() + content, durable=durable)
            self.has_failed = False
        except OSError as error:
            if not self.has_failed:
                log.warning(
                    "%s cannot be written: %s; %s (another folder: client.directory)",
                    *(self.path, error.strerror or error, self._loss),
                )
            self.has_failed = True

    def read(self, limit: int | None = None) -> list[Any] | None:
        """Return [run, field, ...], of at most `limit` bytes if given; None if no file can be read.

        Raises ValueError with the reason if the content is not usable.
        """
        try:
            with open(self.path, "rb") as file:
                octets = file.read(-1 if limit is None else _DIGEST + limit + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s cannot be read: %s", self.path, error)
            return None
        content = octets[_DIGEST:]
        too_long = limit is not None and len(content) > limit
        if too_long or hashlib.sha256(content).digest() != octets[:_DIGEST]:
            raise ValueError(f"{self.path} is incomplete or damaged")
        try:
            found, run, device, *fields = msgpack.unpackb(content)
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise ValueError(f"{self.path} has no valid content") from error
        if (found, device) != (_FORMAT, self._device):
            raise ValueError(f"{self.path} holds another device's, or another version's")
        return [run, *fields]

    def drop(self) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class Spool(DeviceFile):
    """The spool of one device at one server."""

    def __init__(self, directory: Path, server: str, device: str) -> None:
        loss = "updates under way are lost when this device ends"
        super().__init__(directory, server, device, "update", loss)

    def save(self, run: str, layout: bytes, update: Update) -> None:
        self.write(run, layout, wire.encode(update))

    def load(self, run: str, layout: bytes, limit: int) -> Update | None:
        """Return the update that an earlier process computed for the run without a receipt, or None.

        An update of another run, of more than `limit` bytes or incomplete is dropped with a warning.
        """
        try:
            found = self.read(limit + _OVERHEAD)
            if found is None:
                return None
            of_run, of_layout, frame = found
            if (of_run, of_layout) != (run, layout):
                raise ValueError("it is of another run")
            update = wire.decode(frame, (Update,))
        except (ValueError, TypeError, SessionRefused) as reason:
            log.warning("dropped the update that was under way when this device ended: %s", reason)
            self.drop()
            return None
        assert isinstance(update, Update), "nothing else is decoded"
        return update
