"""A journal in a SQLite file: its examination and its mark."""

from contextlib import closing
from pathlib import Path

from edgeflock.server.database import SqliteDatabase
from edgeflock.server.journal.stores import mark
from edgeflock.server.journal.stores.examination import Examination, compare, examine
from edgeflock.server.journal.stores.schema import schema_of
from edgeflock.shared.errors import JournalDamaged


class SqliteStore(SqliteDatabase):
    """The journal in the file at a path, or in memory (":memory:")."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """Open or set up the file. Raises as `schema_of`.

        Without `durable` a commit does not wait for the disk.
        """
        self._durable, self._is_on_disk = durable, str(path) != ":memory:"
        self._mark: mark.ProgressFile | None = None
        self.examination = _examine(path) if self._is_on_disk else Examination()
        super().__init__(path, durable=durable)
        try:
            if self.examination.heads:
                self._open_mark()
        except BaseException:
            self.close()
            raise

    def _open_mark(self) -> None:
        """Open the mark before the commit that it has to note."""
        if self._is_on_disk and self._mark is None:
            self._mark = mark.ProgressFile(self.path, durable=self._durable)
            self._mark.note(self.examination.heads, flush=True)

    def commit(self) -> None:
        if self.connection.in_transaction:
            self._open_mark()
            super().commit()
            if self._mark is not None:
                self._mark.note(self.examination.heads)

    def close(self) -> None:
        super().close()
        if self._mark is not None:
            self._mark.close()
            self._mark = None


def _examine(path: Path) -> Examination:
    """Examine the small tables if the file holds a run. Raises as `schema_of`."""
    schema, found, marked = 0, Examination(), mark.read(path)
    if path.exists():
        with closing(SqliteDatabase(path, read_only=True)) as db:
            if schema := schema_of(db):
                found = examine(db)
                compare(db, found, marked)
    if not schema and marked is not None and (version := marked["updates"].row):
        raise JournalDamaged(f"{path}: it holds no run, and version {version} was acknowledged")
    if found.damage:
        raise JournalDamaged(f"{path}: {found.damage[0]}")
    return found
