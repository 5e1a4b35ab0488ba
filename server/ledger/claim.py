"""Hold a run's directory for one process: its lock, its journal's place, the journal, and its engine."""

import fcntl
import logging
import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.database import URL_FILE, Database, PostgresReader, SqliteDatabase, lease_of
from edgeflock.server.descent import Part, Place
from edgeflock.server.engine import Engine
from edgeflock.server.journal.contents import Contents
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.stores.examination import examine
from edgeflock.server.journal.stores.postgres import PostgresStore
from edgeflock.server.journal.stores.schema import schema_of
from edgeflock.server.ledger.opening import open_engine
from edgeflock.server.ledger.recovery import ReplayedJournal, follow
from edgeflock.server.shards import open_place
from edgeflock.shared.errors import ConfigError, EdgeflockError, InUse, JournalDamaged
from edgeflock.shared.files import write_atomically
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.settings.config import Config

FILE = "journal.sqlite"
"""The file's name in the run's directory."""

_SQLITE = "sqlite:"

_PROBE_BYTES = 1 << 20
"""Bytes that a full disk must accept before the journal is opened again."""


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
    """Return once the folder's disk takes _PROBE_BYTES bytes. Until then call `wait` with the reason."""
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


log = logging.getLogger(__name__)

_POLL_SECONDS = 2.0
"""Seconds between two reads. Each reads all devices and evaluations, and the rows that are new."""


class Follower:
    """Follows the run in a database whose model has this layout."""

    def __init__(self, url: str, layout: Layout, place: Place = Part) -> None:
        """`place` makes the store of the parameters."""
        self._url = url
        self._layout = layout
        self._place = place
        self._next_read = 0.0
        self.followed: ReplayedJournal | None = None
        """None: there is nothing to follow yet, or it could not be read."""

    def poll(self) -> int | None:
        """Catch up, if it is time. Return the version after that; None if none is known.

        An error is only logged: the server that takes over reports it.
        """
        if time.monotonic() >= self._next_read:
            self._next_read = time.monotonic() + _POLL_SECONDS
            try:
                with closing(PostgresReader(self._url)) as database:
                    self._catch_up(database)
            except (OSError, sqlite3.Error, EdgeflockError) as error:
                self.followed = None
                log.debug("the run cannot be followed: %s", error)
        return None if self.followed is None else self.followed.parameters.version

    def _catch_up(self, database: PostgresReader) -> None:
        if not schema_of(database):
            return
        journal = Contents(database, examine(database))
        begun = journal.run()
        if begun is None or begun.layout.digest != self._layout.digest:
            return
        before, began = self.followed, time.monotonic()
        self.followed = follow(journal, self._layout, before, self._place)
        if before is not self.followed:
            version = self.followed.parameters.version
            log.info("following the run at version %d, after %.1f s", version, time.monotonic() - began)


Waiting = Callable[[str, int | None], None]
"""(why this process waits for the run, the version up to which it follows it; None: it follows none)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this process holds."""

    run: str
    journal: Journal
    engine: Engine
    data: Description | None = None
    """What the run's samples are."""


@contextmanager
def claim_run(
    directory: Path | None,
    setting: str,
    layout: Layout,
    theta: NDArray[np.float32],
    config: Config,
    start: Start | None = None,
    wait: Waiting | None = None,
    place: Place | None = None,
    data: Description | None = None,
) -> Iterator[Claim]:
    """Claim the run in the directory that `setting` names, or at journal.url; without both, in memory.

    A new run begins with theta, which `start` makes if it is not None, and with samples as in `data`. An
    older run keeps its samples' description, and targets stay as they are where its journal has none. `wait`
    is called as in `lease_of`, with the version up to which this process follows another server's run.
    Following needs a `place` for the parameters. Without one, config.scale places them after the claim.

    The context ends with a snapshot, so that the next start replays nothing; with an exception, it ends as
    if it were killed. Raises ConfigError if the directory cannot hold a run, or holds one of another layout.
    After any error nothing stays open.
    """
    with ExitStack() as opened:
        try:
            if directory is not None:
                directory.mkdir(0o700, parents=True, exist_ok=True)
                opened.enter_context(lock(directory, setting))
                if is_shared(config.journal.url):  # a standby's folder, too, names the register of the run
                    write_atomically(directory / URL_FILE, f"{config.journal.url}\n".encode())
            url = config.journal.url or _SQLITE + (":memory:" if directory is None else str(directory / FILE))
            path = file_of(url)
            if path is not None and directory is not None and path.parent.resolve() != directory.resolve():
                opened.enter_context(lock(path.parent, "the folder of journal.url"))
            holder = f"{socket.gethostname()}:{config.server.port}"
            follows = wait is not None and path is None
            follower = Follower(url, layout, place) if follows and place is not None else None
            waiting = None if wait is None else _wait_and_follow(follower, wait)
            with _suggest_verify(url):
                journal = open_journal(url, config.journal.lease, waiting, holder)
            closing = opened.enter_context(ExitStack())
            closing.callback(journal.abandon)
            with _suggest_verify(url):
                record = journal.run()
        except (OSError, sqlite3.Error) as error:
            setting_text = (
                f"journal.url = {config.journal.url!r}"
                if config.journal.url
                else f"{setting} = {str(directory)!r}"
            )
            raise ConfigError(f"{setting_text} cannot hold a run: {error}") from error
        if record is None:
            run = secrets.token_hex(8)
            journal.begin_run(run, config.model.module, layout, theta, time.time(), start, data)
        else:
            run = record.run
            data = record.data or (data and data._replace(target=()))
            if record.layout.digest != layout.digest:
                raise ConfigError(
                    f"{journal.path} holds a run of {record.model}, whose layout differs from that of "
                    f"{config.model.module}; choose another {setting}"
                )
        store_place = opened.enter_context(open_place(config.scale)) if place is None else place
        with _suggest_verify(url):
            followed = None if follower is None else follower.followed
            engine = open_engine(journal, layout, config, directory, followed, store_place)
        yield Claim(run, journal, engine, data)
        try:
            engine.close()
        except (OSError, sqlite3.Error) as error:
            raise EdgeflockError(
                f"{journal.path}: the last snapshot could not be written: {error}; "
                "all updates are safe, and the next start replays them"
            ) from error
        closing.pop_all()


def _wait_and_follow(follower: Follower | None, wait: Waiting) -> Callable[[str], None]:
    return lambda reason: wait(reason, None if follower is None else follower.poll())


@contextmanager
def _suggest_verify(url: str) -> Iterator[None]:
    try:
        yield
    except JournalDamaged as damage:
        named = url.removeprefix("sqlite:") if file_of(url) else "URL"
        raise JournalDamaged(f"{damage}; to see what is whole: edgeflock journal verify {named}") from damage


def lock(directory: Path, setting: str) -> IO[str]:
    """Claim the directory for this process. The claim ends with the process, however that ends."""
    file = open(os.open(directory / "lock", os.O_WRONLY | os.O_CREAT, 0o600), "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InUse(
            f"{setting} = {str(directory)!r}: another server hosts it; stop that one or choose another"
        ) from None
    return file
