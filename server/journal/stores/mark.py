"""A journal's mark: a file next to it that says how far it got, and survives the loss of its end.

SQLite takes a damaged end of its log for the end of the log. So each commit is noted here as well, before any
receipt: how many rows each table has, and the chain at the last one. A journal that is behind its mark has
lost something. A journal ahead of its mark was killed between the commit and the note.

Two slots are written in turn, each with a checksum. One of them is whole whenever the process or the machine
ends. `kill -9` loses no written note. Only every 64th commit waits for the disk, since a flush costs as much
as the commit itself. So a power cut may lose the last notes. Nothing is noted before its commit.
"""

import os
import struct
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from edgeflock.server.journal.stores.chain import COVERED

_SLOT = 4096
_PACKED = struct.Struct("<8sQ" + "qI" * len(COVERED))
_MAGIC = b"edgemark"
_SUM = struct.Struct("<I")
_heads_in_order = itemgetter(*COVERED)
_FLUSH_EVERY = 64


class Head(NamedTuple):
    """The last row of a table, and its chain."""

    row: int
    chain: int


Heads = dict[str, Head]
"""Table of `COVERED` -> its end."""


def mark_path(journal: Path) -> Path:
    """The mark's path for a journal."""
    return journal.with_name(journal.name + "-mark")


def read(journal: Path) -> Heads | None:
    """The last note. None if there is no such file, or no whole slot in it."""
    latest = _latest(journal)
    return None if latest is None else latest[1]


class ProgressFile:
    """A mark that is open for writing."""

    def __init__(self, journal: Path, *, durable: bool) -> None:
        """Open or create the file. Raises OSError. Without `durable` nothing waits for the disk."""
        path = mark_path(journal)
        self._durable = durable
        latest = _latest(journal)
        self._number = 0 if latest is None else latest[0]
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if os.fstat(self._file).st_size < 2 * _SLOT:
            os.pwrite(self._file, bytes(2 * _SLOT), 0)

    def note(self, heads: Heads, *, flush: bool = False) -> None:
        """Note the heads after their commit. Raises OSError."""
        self._number += 1
        octets = _PACKED.pack(_MAGIC, self._number, *chain.from_iterable(_heads_in_order(heads)))
        os.pwrite(self._file, octets + _SUM.pack(crc32(octets)), self._number % 2 * _SLOT)
        if self._durable and (flush or self._number % _FLUSH_EVERY == 0):
            os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def _latest(journal: Path) -> tuple[int, Heads] | None:
    """(number, heads) of the newest whole slot."""
    try:
        octets = mark_path(journal).read_bytes()
    except FileNotFoundError:
        return None
    slots = (_unpack(octets[start : start + _PACKED.size + _SUM.size]) for start in (0, _SLOT))
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot[0], default=None)


def _unpack(slot: bytes) -> tuple[int, Heads] | None:
    if len(slot) < _PACKED.size + _SUM.size:
        return None
    magic, number, *heads = _PACKED.unpack(slot[: _PACKED.size])
    if magic != _MAGIC or _SUM.unpack(slot[_PACKED.size :]) != (crc32(slot[: _PACKED.size]),):
        return None
    pairs = zip(heads[::2], heads[1::2], strict=True)
    return number, {table: Head(*pair) for table, pair in zip(COVERED, pairs, strict=True)}
