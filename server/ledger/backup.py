"""Back up a run's directory to one file while its server runs, and restore it.

SQLite's online backup copies each database as of one moment. The mark is copied before the journal, which
then has at least the versions that the mark names. The copy is verified before the file gets its name.
The file contains the run's keys and tokens. Only its owner may read it, as the directory.

A backup is older than what devices have seen since. So a restored run gets a new name (`repair`), and devices
begin with the restored model. It keeps its name only if its server is known to have done nothing since the
backup.

Copy a run's journal to another place, row by row, and compare the copy with the source.
"""

import gzip
import hashlib
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
import zlib
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import msgpack

from edgeflock.server.database import SqliteDatabase
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.stores import mark
from edgeflock.server.journal.stores.schema import TABLES, schema_of
from edgeflock.server.ledger.claim import FILE, file_of, lock, open_journal
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.ledger.repairing import repair
from edgeflock.server.ledger.verifying import verify
from edgeflock.shared.errors import ConfigError, JournalDamaged

_ENDS = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps with a database. The database's copy has their content."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The content of a backup, or of a restored run."""

    run: str
    version: int
    files: tuple[str, ...]
    left: tuple[str, ...] = ()
    """Folders that were not copied."""


def back_up(directory: str | Path, file: str | Path) -> BackupReport:
    """Write the run in `directory` to the new file `file`. Its server may keep running.

    Raises ConfigError if there is no run, or if `file` exists already or cannot be written. Raises
    JournalDamaged if the journal is damaged.
    """
    directory, file = Path(directory), Path(file)
    if not directory.exists():
        raise ConfigError(f"{directory}: there is no such folder; name that of the run (server.directory)")
    if not (directory / FILE).is_file():
        raise ConfigError(
            f"{directory} holds no run: it has no {FILE}; back up a run in a database (journal.url) with "
            "pg_dump"
        )
    if file.exists():
        raise ConfigError(f"{file}: there is such a file already; name another")
    with closing(SqliteDatabase(directory / FILE, read_only=True)) as db:
        schema_of(db)  # its error names this file, not the copy that is verified
    try:
        with tempfile.TemporaryDirectory(dir=file.absolute().parent, prefix=".edgeflock-backup-") as scratch:
            copies = Path(scratch)
            skipped = _copy(directory, copies)
            report = verify(copies / FILE)
            if report.damage:
                raise JournalDamaged(
                    f"{directory / FILE} is damaged and not backed up: {report.damage[0]}; to see what "
                    f"is whole: edgeflock journal verify {directory}"
                )
            names = tuple(sorted(path.name for path in copies.iterdir()))
            packed = copies / "packed"
            with open(os.open(packed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as octets:
                with tarfile.open(fileobj=octets, mode="w:gz", compresslevel=1) as archive:
                    for name in names:
                        archive.add(copies / name, name)
                octets.flush()
                os.fsync(octets.fileno())
            os.link(packed, file)  # unlike a rename it never replaces what came there meanwhile
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"{file}: the backup cannot be written: {error}") from error
    return BackupReport(report.run, report.version, names, skipped)


def restore(file: str | Path, directory: str | Path, *, same_run: bool = False) -> BackupReport:
    """Unpack a backup into `directory`, which must be empty or absent.

    With `same_run` devices continue as before; otherwise the run gets a new name. Raises ConfigError if
    `file` is no backup or the directory is not empty, JournalDamaged if the backup's journal is damaged.
    After an error nothing is left behind.
    """
    file, directory = Path(file), Path(directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{directory} is not empty; restore into a new directory")
    is_new = not directory.exists()
    try:
        directory.mkdir(0o700, parents=True, exist_ok=True)
        try:
            names = _unpack(file, directory)
            try:
                report = verify(directory / FILE)
            except ConfigError as error:
                raise ConfigError(f"{file}: {error}") from error
            if report.damage:
                raise JournalDamaged(
                    f"{file}: its journal is damaged: {report.damage[0]}; try an older backup"
                )
            run = report.run if same_run else repair(directory / FILE, report.version, time.time()).run
            if not same_run:
                for old in directory.glob(f"{FILE}.before-repair-1*"):
                    old.unlink()  # the backup has it
        except BaseException:
            for path in directory.iterdir():
                path.unlink()
            if is_new:
                directory.rmdir()
            raise
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"{file} cannot be restored into {directory}: {error}") from error
    return BackupReport(run, report.version, names)


def _copy(directory: Path, copies: Path) -> tuple[str, ...]:
    """Copy the directory's files to `copies`. Return its folders, which are not copied."""
    mark_file = mark.mark_path(directory / FILE)
    skipped = tuple(sorted(path.name for path in directory.iterdir() if path.is_dir()))
    files = [path for path in directory.iterdir() if path.is_file() and path.name != "lock"]
    for path in sorted(files, key=lambda path: path != mark_file):
        if path.name.endswith(_ENDS):
            continue
        copy = copies / path.name
        if path.suffix == ".sqlite":
            with (
                closing(SqliteDatabase(path, read_only=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.connection.backup(target)
        else:
            shutil.copyfile(path, copy)
        copy.chmod(0o600)
    return skipped


def _unpack(file: Path, directory: Path) -> tuple[str, ...]:
    """Unpack the archive and return the files' names. It may hold plain files with plain names only."""
    try:
        with gzip.open(file) as octets:
            while octets.read(1 << 20):  # its checksum is at its end, where tarfile does not look
                pass
        with tarfile.open(file, "r:gz") as archive:
            members = archive.getmembers()
            for member in members:
                if (
                    not member.isreg()
                    or Path(member.name).name != member.name
                    or member.name in ("", ".", "..")
                ):
                    raise ConfigError(f"{file} is no backup of a run: it holds {member.name!r}")
            names = tuple(sorted(member.name for member in members))
            if FILE not in names or len(set(names)) != len(names):
                raise ConfigError(f"{file} is no backup of a run: it holds {', '.join(names) or 'nothing'}")
            for member in members:
                source = archive.extractfile(member)
                assert source is not None  # it is a plain file
                path = directory / member.name
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as unpacked:
                    shutil.copyfileobj(source, unpacked)
                    unpacked.flush()
                    os.fsync(unpacked.fileno())
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ConfigError(f"{file} is no backup of a run, or a part of one: {error}") from error
    return names


_LEASE = 60.0
"""Seconds. No other process waits for this lease."""


@dataclass(frozen=True, slots=True)
class CopyReport:
    run: str
    version: int
    rows: int
    theta: str
    """SHA-256 of the model, replayed from the newest snapshot of the copy."""


def copy(source: str, target: str) -> CopyReport:
    """Copy a run to a place that holds none. Compare all rows, and the models that both journals replay to.

    Raises ConfigError if a server hosts one of them, the source has no run, or the target has one. Raises
    JournalDamaged if the copy differs; it must not be used then.
    """
    with ExitStack() as opened:
        for folder in {path.resolve().parent for path in map(file_of, (source, target)) if path is not None}:
            if not folder.is_dir():
                raise ConfigError(f"{folder}: there is no such folder; name another, or create it")
            opened.enter_context(lock(folder, "the folder of a journal"))
        path = file_of(source)
        if path is not None and not path.is_file():
            raise ConfigError(f"{path}: there is no such file; name a run's journal.sqlite, or its folder")
        old = open_journal(source, _LEASE)
        opened.callback(old.abandon)
        begun = old.run()
        if begun is None:
            raise ConfigError(f"{old.path} holds no run; name the journal of one that has run")
        new = open_journal(target, _LEASE)
        opened.callback(new.abandon)
        if (present := new.run()) is not None:
            raise ConfigError(f"{new.path} holds a run already, {present.run}; name another place")
        new.copy_from(old)
        rows, digest = _digest(old)
        if _digest(new) != (rows, digest):
            raise JournalDamaged(
                f"{new.path} differs from {old.path}, of which it is a copy: delete it and copy again"
            )
        theta, copied = _model_digest(old), _model_digest(new)
        if theta != copied:
            raise JournalDamaged(f"{new.path} replays to the model {copied}, {old.path} to {theta}")
        return CopyReport(begun.run, new.version, rows, theta)


def _digest(journal: Journal) -> tuple[int, str]:
    """(rows, SHA-256 of them all)."""
    count, total = 0, hashlib.sha256()
    for table in TABLES:
        for row in journal.table(table):
            total.update(msgpack.packb(row))
            count += 1
    return count, total.hexdigest()


def _model_digest(journal: Journal) -> str:
    run = journal.run()
    assert run is not None, "it was looked at before"
    model = replay(journal, run.layout, newest=True) if journal.regimes() else journal.snapshot()
    return hashlib.sha256(model.theta.astype("<f4").tobytes()).hexdigest()
