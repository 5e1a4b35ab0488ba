"""Where a journal lies, as journal.url has it: a file of SQLite, or a database of PostgreSQL."""

from collections.abc import Callable
from pathlib import Path

from edgeflock.server.ledger.journal import Journal
from edgeflock.server.ledger.stores.lease import lease_of
from edgeflock.server.ledger.stores.postgres import PostgresStore

FILE = "journal.sqlite"
"""In the run's directory."""

_SQLITE = "sqlite:"


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
    `lease`, `wait` and `holder` are as of `lease_of`; who writes a file is its caller's to see to.

    Raises ConfigError, JournalDamaged, JournalTooNew, and OSError or sqlite3.Error if it cannot be written.
    """
    path = file_of(place)
    if path is not None:
        return Journal(path)
    return Journal(PostgresStore(place, lease_of(place, lease, wait, holder)))
