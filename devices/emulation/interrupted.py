"""What an interrupted run of a fleet leaves behind: its journal, from which the next run goes on.

A fleet is deterministic, so a run that is begun again meets the same steps: those that were computed before
are read from the journal, which is several times faster than computing them. A model that draws random
numbers of its own (dropout) goes on with other ones than it would have drawn, and a step that had to skip a
batch with NaN gradients with another batch.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from edgeflock.server.ledger import Journal
from edgeflock.server.ledger.records import Journaled
from edgeflock.server.ledger.stores.mark import marked
from edgeflock.shared.errors import JournalDamaged
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Update

JOURNAL = "journal.sqlite"
_CUT_SHORT = "interrupted.sqlite"


class Interrupted:
    """The journal of the run in `directory` that got furthest, moved aside; empty if there is none."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / _CUT_SHORT
        self._fresh = directory / JOURNAL
        # A run that was interrupted while it went on from another one may know less than that one.
        if _length(self._fresh) > _length(self._path):
            _remove(self._path)
            self._fresh.rename(self._path)
            marked(self._fresh).rename(marked(self._path))
        _remove(self._fresh)
        if _length(self._path) < 0:
            _remove(self._path)
        self._journal: Journal | None = None
        self._known: dict[tuple[int, int], Journaled] = {}
        self._evaluations: dict[int, tuple[float, float | None]] = {}
        if self._path.exists():
            self._journal = Journal(self._path, durable=False)
            self._known = self._journal.frames()
            self._evaluations = {
                e.version: (e.loss, e.accuracy) for e in self._journal.evaluations() if e.loss is not None
            }

    def update(self, device: int, sequence: int, until: float) -> Update | None:
        """What this device pushed under this sequence number by virtual second `until`, if it did."""
        known = self._known.get((device, sequence))
        if self._journal is None or known is None or known.time > until:
            return None
        (journaled,) = self._journal.updates(known.version - 1, known.version)
        update = wire.decode(journaled.frame)
        assert isinstance(update, Update)
        return update

    def evaluation(self, version: int) -> tuple[float, float | None] | None:
        """(loss, accuracy) at a version, if the journal has it."""
        return self._evaluations.get(version)

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def forget(self) -> None:
        """The run is over: remove the folder with both journals."""
        _remove(self._path)
        _remove(self._fresh)
        if not any(self._path.parent.iterdir()):
            self._path.parent.rmdir()


def _length(path: Path) -> int:
    """How many updates a journal file holds; -1 if there is none. Leaves it in one piece, without its WAL."""
    if not path.exists():
        return -1
    try:
        with closing(Journal(path, durable=False)) as journal:
            return len(journal.frames()) if journal.run() else -1
    # Commits do not wait for the disk: a power cut may have torn it.
    except (sqlite3.DatabaseError, JournalDamaged):
        return -1


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-mark"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
