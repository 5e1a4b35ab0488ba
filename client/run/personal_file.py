"""Keeps a device's personal layers in a file, so that they outlast the process.

Each device has one file for each run in its folder, DIGEST-RUN.personal (training/spool.py), of the MAX_RUNS
runs that it trained last. Its fields are the layers as [[name, shape], ...], and their parameters as
little-endian float32. A damaged file is not used. A backup of a device copies these files.
"""

import hashlib
import logging
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.training.spool import DeviceFile
from edgeflock.shared.artifacts.info import with_tensors
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Welcome

log = logging.getLogger(__name__)

MAX_RUNS = 8
"""The most files of one device at one server: a server may name any number of runs."""

SAVE_SECONDS = 60.0
"""The shortest time between two writes, to spare memory cards. A killed device loses the steps since."""


class PersonalFile(DeviceFile):
    """The files of one device at one server, one of which is that of its present run."""

    def __init__(self, directory: Path, server: str, device: str) -> None:
        loss = "this device's personal layers are lost when it ends"
        super().__init__(directory, server, device, "personal", loss)
        self._stem = self.path.stem
        self._run, self._shapes = "", list[object]()
        self._theta: NDArray[np.float32] | None = None
        self._saved_at = time.monotonic()

    def begin(self, welcome: Welcome) -> NDArray[np.float32] | None:
        """Return the layers that an earlier process trained in the run of `welcome`, or None."""
        assert welcome.personal is not None, "the caller checks"
        self.save()
        self._run, self._shapes, self._theta = welcome.run, welcome.personal.shapes, None
        own = f"{self._stem}-{hashlib.sha256(self._run.encode()).hexdigest()[:16]}.personal"
        self._drop_oldest(own)
        self.path = self.path.with_name(own)
        try:
            found = self.read()
            if found is None:
                return None
            run, shapes, values = found
            if (run, shapes) != (self._run, self._shapes):
                raise ValueError(f"{self.path} has other layers")
            theta = np.frombuffer(values, "<f4").astype(np.float32)
        except (ValueError, TypeError) as reason:
            log.warning("%s; the personal layers start anew", reason)
            return None
        return theta if np.isfinite(theta).all() else None

    def _drop_oldest(self, own: str) -> None:
        """Remove the files of all but the last runs, so that there is room for that named `own`."""
        with suppress(OSError):
            others = [path for path in self.path.parent.glob(f"{self._stem}-*") if path.name != own]
            others.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
            for path in others[MAX_RUNS - 1 :]:
                path.unlink()

    def keep(self, theta: NDArray[np.float32]) -> None:
        """Note the layers after a step, and write them if the last write is SAVE_SECONDS ago."""
        self._theta = theta.copy()
        if time.monotonic() >= self._saved_at + SAVE_SECONDS:
            self.save()

    def merge(self, octets: bytes, run: str) -> bytes:
        """Return the server's safetensors file of `run` with this device's layers, if that run has such."""
        if self._theta is None or run != self._run:
            return octets
        own = Layout.from_shapes(self._shapes)  # type: ignore[arg-type]  # terms.py has checked it
        return with_tensors(octets, {t.name: self._theta[t.start : t.stop] for t in own.tensors})

    def save(self) -> None:
        """Write the layers. A failure is logged once, and training goes on."""
        if self._theta is not None:
            self._saved_at = time.monotonic()
            self.write(self._run, self._shapes, self._theta.astype("<f4").tobytes(), durable=True)
