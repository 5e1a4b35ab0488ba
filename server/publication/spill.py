"""A spill file for vectors that do not fit in memory. It disappears with the process."""

import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_RESERVED = 1 << 30
"""Bytes of the disk that are reserved for the journal."""


class Spill:
    """A file of slots with `size` float32 each.

    It is read and written, not mapped, so that its content does not count as memory of the process.
    """

    def __init__(self, directory: Path | None, size: int, max_bytes: int) -> None:
        """The file is in `directory`, or in the directory of temporary files."""
        self._directory = directory
        self._size = size
        self._max_slots = max_bytes // (4 * size)
        self._file: int | None = None
        self._slots = 0
        self._free: list[int] = []

    def put(self, values: NDArray[np.float32]) -> int | None:
        """Store `values` and return their slot; None if there is no room."""
        slot = None
        try:
            slot = self._slot()
            if slot is not None:
                assert self._file is not None, "opened with the first slot"
                if os.pwrite(self._file, values.data, 4 * self._size * slot) == values.nbytes:
                    return slot
        except OSError:  # a full disk, a quota, no folder: it is only a cache
            self._max_slots = self._slots
        if slot is not None:
            self._free.append(slot)
        return None

    def take(self, slot: int) -> NDArray[np.float32] | None:
        """Return the content of the slot and free it. None if it cannot be read."""
        assert self._file is not None, "there is a slot"
        values = np.empty(self._size, np.float32)
        self._free.append(slot)
        try:
            read = os.preadv(self._file, [values.data], 4 * self._size * slot)
        except OSError:
            return None
        return values if read == values.nbytes else None

    def drop(self, slot: int) -> None:
        """Free the slot."""
        self._free.append(slot)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _slot(self) -> int | None:
        if self._free:
            return self._free.pop()
        if self._slots >= self._max_slots:
            return None
        if self._file is None:
            # Not all file systems support O_TMPFILE. An unlinked file disappears with the process.
            self._file, name = tempfile.mkstemp(".edgeflock", dir=self._directory)
            os.unlink(name)
        disk = os.fstatvfs(self._file)
        if disk.f_bavail * disk.f_frsize < _RESERVED + 4 * self._size:
            return None
        self._slots += 1
        return self._slots - 1
