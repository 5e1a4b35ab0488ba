"""Where a journal lies, as journal.url has it: a file of SQLite, or a database of PostgreSQL."""

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from edgeflock.server.ledger.journal import Journal
from edgeflock.server.ledger.stores.examination import is_damage
from edgeflock.server.ledger.stores.lease import lease_of
from edgeflock.server.ledger.stores.links import JournalLost, Unreachable
from edgeflock.server.ledger.stores.postgres import PostgresStore

FILE = "journal.sqlite"
"""In the run's directory."""

_SQLITE = "sqlite:"

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)

_ROOM = 1 << 20
"""Bytes that a disk must take before a journal goes on that was lost because it took nothing."""


def default_place(directory: Path | None) -> str:
    """That of a run in a directory; without one in memory."""
    return _SQLITE + (":memory:" if directory is None else str(directory / FILE))


def file_of(place: str) -> Path | None:
    """The file; None: it is a database."""
    return Path(place.removeprefix(_SQLITE)) if place.startswith(_SQLITE) else None


def is_shared(place: str) -> bool:
    """Whether it is a database, which several machines reach."""
    return bool(place) and file_of(place) is None


def open_journal(
    place: str, lease: float, wait: Callable[[str], None] | None = None, holder: str = ""
) -> Journal:
    """The journal at a place, new if there is none. A database is this process's alone until it is closed:
    `lease`, `wait` and `holder` are as of `lease_of`; who writes a file is its caller's to see to, and `wait`
    is called while its disk takes nothing.

    Raises ConfigError, JournalDamaged, JournalTooNew, and OSError or sqlite3.Error if it cannot be written.
    """
    path = file_of(place)
    if path is not None:
        if wait is not None:
            _until_written(path.parent, wait)
        return Journal(path)
    return Journal(PostgresStore(place, lease_of(place, lease, wait, holder)))


def passes(error: BaseException | None) -> bool:
    """Whether what a journal failed with may pass by itself: no database answers, or the disk is full."""
    while error is not None:
        if isinstance(error, JournalLost | Unreachable):
            return True
        if isinstance(error, sqlite3.OperationalError) and not is_damage(error):
            return True
        if isinstance(error, OSError) and error.errno in _PASSING:
            return True
        error = error.__cause__
    return False


def _until_written(folder: Path, wait: Callable[[str], None]) -> None:
    """Return once the folder's disk takes _ROOM bytes; until then `wait` is told why it does not."""
    probe = folder / ".edgeflock-room"
    while True:
        try:
            with probe.open("wb") as file:
                file.write(bytes(_ROOM))
                file.flush()
                os.fsync(file.fileno())
            return
        except OSError as error:
            why = f"its journal cannot be written: {error.strerror}"
        finally:
            with suppress(OSError):
                probe.unlink()
        wait(why)
