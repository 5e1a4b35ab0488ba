"""The place of a journal, as in journal.url: a SQLite file, or a PostgreSQL database."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from edgeflock.server.database import Database, PostgresReader, SqliteDatabase, lease_of
from edgeflock.server.ledger.journal import Journal
from edgeflock.server.ledger.stores.postgres import PostgresStore

FILE = "journal.sqlite"
"""The file's name in the run's directory."""

_SQLITE = "sqlite:"

_PROBE_BYTES = 1 << 20
"""Bytes that a full disk must accept before the journal is opened again."""


def default_place(directory: Path | None) -> str:
    """The place of a run in a directory. Without a directory it is in memory."""
    return _SQLITE + (":memory:" if directory is None else str(directory / FILE))


def file_of(place: str) -> Path | None:
    """The file of a place. None: it is a database."""
    return Path(place.removeprefix(_SQLITE)) if place.startswith(_SQLITE) else None


def is_shared(place: str) -> bool:
    """Whether the place is a database, which several machines can reach."""
    return bool(place) and file_of(place) is None


def open_journal(
    place: str, lease: float, wait: Callable[[str], None] | None = None, holder: str = ""
) -> Journal:
    """Open the journal at a place, or create it. A database belongs to this process until it is closed.

    `lease`, `wait` and `holder` are as in `lease_of`. The caller locks a file; `wait` is called while its
    disk is full. Raises ConfigError, JournalDamaged, JournalTooNew; OSError, sqlite3.Error if writing fails.
    """
    path = file_of(place)
    if path is not None:
        if wait is not None:
            _wait_for_disk(path.parent, wait)
        return Journal(path)
    return Journal(PostgresStore(place, lease_of(place, lease, wait, holder)))


def open_reader(place: str | Path) -> Database:
    """The journal at a place, or in a file, as of one moment. It is not changed."""
    path = place if isinstance(place, Path) else file_of(place)
    return PostgresReader(str(place)) if path is None else SqliteDatabase(path, read_only=True)


def _wait_for_disk(folder: Path, wait: Callable[[str], None]) -> None:
    """Return once the folder's disk takes _ROOM bytes. Until then call `wait` with the reason."""
    probe = folder / ".edgeflock-room"
    while True:
        try:
            with probe.open("wb") as file:
                file.write(bytes(_PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
            return
        except OSError as error:
            reason = f"its journal cannot be written: {error.strerror}"
        finally:
            with suppress(OSError):
                probe.unlink()
        wait(reason)
