"""A journal in a SQLite file: its permissions, its write-ahead log, its mark, its migration."""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from edgeflock.server.ledger.stores import mark
from edgeflock.server.ledger.stores.examination import (
    Examination,
    File,
    examine,
    open_file,
    raise_if_damaged,
    replace_bad_text,
)
from edgeflock.server.ledger.stores.mark import Heads
from edgeflock.server.ledger.stores.migrations import SCHEMA, TABLES, migrate, schema_of
from edgeflock.shared.errors import JournalDamaged

log = logging.getLogger(__name__)


class SqliteStore:
    """The file at a path, or ":memory:". Implements JournalStore (store.py)."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """Open or set up the file, and migrate it if an older version wrote it.

        Without `durable` a commit does not wait for the disk. Raises JournalTooNew if a newer version of
        the software wrote the file.
        """
        self.path = path
        self._durable = durable
        self._mark: mark.ProgressFile | None = None
        self.examination = self._examine_private() if self._is_on_disk else None
        self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=File)
        # Pages of 16 KiB hold several updates, which saves a quarter of a commit's time.
        synchronous = "FULL" if durable else "OFF"
        try:
            replace_bad_text(self.db)
            schema_of(self.db, path)  # before any write, since the file may be no journal
            for pragma in ("page_size = 16384", "journal_mode = WAL", f"synchronous = {synchronous}"):
                self.db.execute(f"PRAGMA {pragma}")
            migrate(self.db, path, before_commit=self._finish_migration)
            if self.examination is not None:
                self._open_mark(self.examination.heads)
        except BaseException as error:
            self.db.close()
            if isinstance(error, sqlite3.Error):
                raise_if_damaged(path, error)
            raise

    @property
    def _is_on_disk(self) -> bool:
        return str(self.path) != ":memory:"

    def _examine_private(self) -> Examination | None:
        """Examine the small tables if the file has this schema. Make it private. Raises JournalDamaged."""
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite's other files follow its mode
        found = self._examine()
        _keep_private(self.path)
        return found

    def _examine(self) -> Examination | None:
        marked = mark.read(self.path)
        version = marked is not None and marked["updates"].row
        try:
            with open_file(self.path) as db:
                schema = schema_of(db, self.path)
                if schema == SCHEMA:
                    found = examine(db, self.path, marked)
                elif schema or not version:
                    return None
        except sqlite3.Error as error:
            raise_if_damaged(self.path, error)
            raise
        if not schema:
            raise JournalDamaged(f"{self.path}: it holds no run, and version {version} was acknowledged")
        if found.damage:
            raise JournalDamaged(f"{self.path}: {found.damage[0]}")
        return found

    def _finish_migration(self) -> None:
        self.examination = examine(self.db, self.path, None)
        self._open_mark(self.examination.heads)

    def _open_mark(self, heads: Heads) -> None:
        """Open the mark before the commit that it has to note."""
        if self._is_on_disk and self._mark is None:
            self._mark = mark.ProgressFile(self.path, durable=self._durable)
            self._mark.note(heads, flush=True)

    def rows(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yield rows, one by one. Raises JournalDamaged where SQLite finds damage."""
        try:
            # No `yield from`: that would close the cursor, which fails once the journal is closed.
            for row in self.db.execute(statement, values):  # noqa: UP028
                yield row
        except sqlite3.Error as error:
            raise_if_damaged(self.path, error)
            raise

    stream = rows

    def begin(self) -> None:
        # The state is read, not stored: on a full disk SQLite rolls back by itself.
        if not self.db.in_transaction:
            self.db.execute("BEGIN")

    def create_tables(self) -> None:
        self.db.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {SCHEMA};")

    def write(self, statement: str, *values: object) -> None:
        self.begin()
        self.db.execute(statement, values)

    def add_updates(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self.begin()
        places = ", ".join("?" * len(rows[0]))
        self.db.executemany(f"INSERT INTO updates VALUES ({places})", rows)

    def commit(self, heads: Heads) -> None:
        if self.db.in_transaction:
            self._open_mark(heads)
            self.db.execute("COMMIT")
            if self._mark is not None:
                self._mark.note(heads)

    def loss_reason(self) -> str:
        return ""  # the folder's lock ends with the process

    def add_loss_callback(self, callback: Callable[[], None]) -> None:
        """Do nothing, since a file is never lost."""

    def close(self) -> None:
        self.db.close()
        if self._mark is not None:
            self._mark.close()
            self._mark = None


def _keep_private(path: Path) -> None:
    """Allow the owner only, whatever the umask was: a journal has all devices' updates."""
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-mark")]
    opened = [file for file in files if file.exists() and file.stat().st_mode & 0o077]
    for file in opened:
        file.chmod(0o600)
    if opened:
        log.warning("%s was readable by other users; now only its owner can read it", path)
