"""Keeps a device's personal layers in a file, so that they outlast the process.

Each device has one file in its folder, DIGEST.personal:

    SHA-256 of what follows, 32 bytes
    msgpack [1, run, device, [[name, shape], ...], the parameters as little-endian float32]

A file of another run, or a damaged one, is not used. A backup of a device copies this file.
"""

import hashlib
import logging
import time
from pathlib import Path

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.artifacts.files import with_tensors
from edgeflock.shared.files import write_atomically
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Welcome

log = logging.getLogger(__name__)

_FORMAT = 1
_DIGEST = hashlib.sha256().digest_size

SAVE_SECONDS = 60.0
"""The shortest time between two writes, to spare memory cards. A killed device loses the steps since."""


class PersonalFile:
    """The file of one device at one server."""

    def __init__(self, directory: Path, server: str, device: str) -> None:
        owner = hashlib.sha256(f"{server}\n{device}".encode()).hexdigest()[:32]
        self.path = directory / f"{owner}.personal"
        self._device = device
        self._head: list[object] = []
        self._theta: NDArray[np.float32] | None = None
        self._saved_at = time.monotonic()
        self._has_failed = False

    def begin(self, welcome: Welcome) -> NDArray[np.float32] | None:
        """Return the layers that an earlier process trained in the run of `welcome`, or None."""
        assert welcome.personal is not None, "the caller checks"
        self._head, self._theta = [_FORMAT, welcome.run, self._device, welcome.personal.shapes], None
        try:
            octets = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s cannot be read: %s; its layers start anew", self.path, error.strerror)
            return None
        content = octets[_DIGEST:]
        try:
            if hashlib.sha256(content).digest() != octets[:_DIGEST]:
                raise ValueError("it is damaged")
            *head, values = msgpack.unpackb(content)
            theta = np.frombuffer(values, "<f4").astype(np.float32)
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            log.warning("%s is not used: %s; the personal layers start anew", self.path, error)
            return None
        if head != self._head:
            log.info("%s is of another run; the personal layers start anew", self.path)
            return None
        return theta if np.isfinite(theta).all() else None

    def keep(self, theta: NDArray[np.float32]) -> None:
        """Note the layers after a step, and write them if the last write is SAVE_SECONDS ago."""
        self._theta = theta.copy()
        if time.monotonic() >= self._saved_at + SAVE_SECONDS:
            self.save()

    def merge(self, octets: bytes) -> bytes:
        """Return the server's safetensors file with this device's personal layers, if the run has such."""
        if self._theta is None:
            return octets
        own = Layout.from_shapes(self._head[3])  # type: ignore[arg-type]  # terms.py has checked it
        return with_tensors(octets, {t.name: self._theta[t.start : t.stop] for t in own.tensors})

    def save(self) -> None:
        """Write the layers. A failure is logged once, and training goes on."""
        if self._theta is None:
            return
        content = msgpack.packb([*self._head, self._theta.astype("<f4").tobytes()])
        self._saved_at = time.monotonic()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, hashlib.sha256(content).digest() + content, 0o666)
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                log.warning(
                    "%s cannot be written: %s; this device's personal layers are lost when it ends (another "
                    "folder: client.directory)",
                    *(self.path, error.strerror or error),
                )
            self._has_failed = True
