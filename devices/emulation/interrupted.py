"""The journal of an interrupted run of a fleet, from which the next run goes on.

A fleet is deterministic, so a run that begins again meets the same steps. It reads the computed steps from
the journal, several times faster than it computes them. There are two exceptions. A model with dropout draws
other random numbers than it would have drawn. A step that skipped a batch with NaN gradients goes on with
another batch.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from edgeflock.server.ledger import Journal
from edgeflock.server.ledger.records import UpdateReceipt
from edgeflock.server.ledger.stores.mark import mark_path
from edgeflock.shared.errors import JournalDamaged
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Update

JOURNAL = "journal.sqlite"
_INTERRUPTED = "interrupted.sqlite"


class Interrupted:
    """The longest journal of the run in `directory`, under another name. It is empty if there is none."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / _INTERRUPTED
        self._current = directory / JOURNAL
        # A run that goes on from another one may be interrupted before it holds as many updates.
        if _length(self._current) > _length(self._path):
            _remove(self._path)
            self._current.rename(self._path)
            mark_path(self._current).rename(mark_path(self._path))
        _remove(self._current)
        if _length(self._path) < 0:
            _remove(self._path)
        self._journal: Journal | None = None
        self._frames: dict[tuple[int, int], UpdateReceipt] = {}
        self._evaluations: dict[int, tuple[float, float | None]] = {}
        if self._path.exists():
            self._journal = Journal(self._path, durable=False)
            self._frames = self._journal.frames()
            self._evaluations = {
                e.version: (e.loss, e.accuracy) for e in self._journal.evaluations() if e.loss is not None
            }

    def update(self, device: int, sequence: int, end: float) -> Update | None:
        """Return the device's update with this number, if it pushed one by virtual second `end`."""
        frame = self._frames.get((device, sequence))
        if self._journal is None or frame is None or frame.time > end:
            return None
        (journaled,) = self._journal.updates(frame.version - 1, frame.version)
        update = wire.decode(journaled.frame)
        assert isinstance(update, Update)
        return update

    def evaluation(self, version: int) -> tuple[float, float | None] | None:
        """Return (loss, accuracy) at a version, if the journal has it."""
        return self._evaluations.get(version)

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def remove(self) -> None:
        """Remove both journals after the end of the run, and the folder if it is empty."""
        _remove(self._path)
        _remove(self._current)
        if not any(self._path.parent.iterdir()):
            self._path.parent.rmdir()


def _length(path: Path) -> int:
    """Return how many updates a journal file holds, -1 if it has no run. Merges its WAL into the file."""
    if not path.exists():
        return -1
    try:
        with closing(Journal(path, durable=False)) as journal:
            return len(journal.frames()) if journal.run() else -1
    # Commits do not wait for the disk: a power failure may have damaged the file.
    except (sqlite3.DatabaseError, JournalDamaged):
        return -1


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-mark"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
