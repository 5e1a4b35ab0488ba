"""Who writes a journal in PostgreSQL: one process at a time, whatever becomes of the others.

The lease is an advisory lock, held by a connection of its own, and an epoch, one higher for each that takes
it, which every transaction of the journal checks. The holder's connection speaks every third of the lease's
seconds. PostgreSQL ends it by itself once it has been silent for all of them (idle_session_timeout): of a
process that is gone, paused or cut off. Then the lock is free, and whoever takes it raises the epoch; a
former holder that wakes up finds another epoch, and writes nothing. No clock is compared with another.

A holder that gets no answer for as long gives up by itself, and is told by `lost`.
"""

import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from edgeflock.server.ledger.stores.links import (
    UNREACHABLE,
    JournalLost,
    Outage,
    Unreachable,
    connected,
    named,
    psycopg,
    shown,
)
from edgeflock.shared.errors import ConfigError

if TYPE_CHECKING:
    from psycopg import Connection

_LOCK = "hashtextextended('edgeflock ' || current_schema(), 0)"
"""One for each schema: locks are the database's, a run is a schema's."""

_PATIENCE = 1.0
"""Seconds that a process which ends waits for the database to hear of it."""


class Lease:
    """Asked for with `take`; held until `close`, or until the database or this process no longer answers."""

    def __init__(self, url: str, seconds: float, holder: str = "") -> None:
        """`holder` is what others are told of who holds it. Raises ConfigError if the database cannot be
        reached.
        """
        self.seconds = seconds
        self.epoch = 0
        self._path = shown(url)
        self._holder = holder or socket.gethostname()
        self._why = ""
        self._tell: list[Callable[[], None]] = []
        self._over = threading.Event()
        self._beating: threading.Thread | None = None
        self._connection: Connection[Any] = connected(url, "edgeflock lease")

    def take(self) -> bool:
        """Whether it is this process's from now on. Raises JournalLost."""
        with named(self._path):
            self._beat()  # which waits no longer than it should
            (taken,) = self._connection.execute(f"SELECT pg_try_advisory_lock({_LOCK})").fetchone() or (
                False,
            )
            if not taken:
                return False
            # Before anything else: if it takes long, others may have it again.
            self._connection.execute(f"SET idle_session_timeout = {round(1000 * self.seconds)}")
            self._connection.execute("SET statement_timeout = 0")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS lease (schema BIGINT NOT NULL, epoch BIGINT NOT NULL, "
                "holder TEXT NOT NULL)"
            )
            self._connection.execute("INSERT INTO lease SELECT 0, 0, '' WHERE NOT EXISTS (SELECT FROM lease)")
            # Waits for the transaction of whoever held it, if one is open.
            raised = self._connection.execute(
                "UPDATE lease SET epoch = epoch + 1, holder = %s RETURNING epoch", (self._holder,)
            )
            (self.epoch,) = raised.fetchone() or (0,)
        self._beating = threading.Thread(target=self._beat_on, name="edgeflock-lease", daemon=True)
        self._beating.start()
        return True

    def holder(self) -> str:
        """Who holds it, or did last; empty if nobody has. Raises JournalLost."""
        with named(self._path):
            if self._connection.execute("SELECT to_regclass('lease')").fetchone() == (None,):
                return ""
            (holder,) = self._connection.execute("SELECT holder FROM lease").fetchone() or ("",)
        return str(holder)

    def keep(self, lost: Callable[[], None]) -> None:
        """Call `lost`, from another thread, once it is over before `close`; at once if it is."""
        self._tell.append(lost)
        if self._why:
            lost()

    def why(self) -> str:
        """Why it is over; empty while it is not."""
        return self._why

    def taken(self) -> str:
        """What is said once another epoch has begun."""
        return f"another server hosts the run since ({self._holder} had epoch {self.epoch})"

    def close(self) -> None:
        """Let others have it, from now on: PostgreSQL takes a moment to notice that a connection is gone."""
        self._over.set()
        if self._beating is not None:
            self._beating.join()
            with suppress(OSError, psycopg().Error):  # where nobody answers, it ends by itself
                self._say(f"SELECT pg_advisory_unlock({_LOCK})", min(_PATIENCE, self.seconds))
        self._connection.close()

    def _beat_on(self) -> None:
        while not self._over.wait(self.seconds / 3):
            try:
                self._beat()
            except (OSError, psycopg().Error) as error:
                if not self._over.is_set():
                    self._why = f"the lease of the run is lost: {' '.join(str(error).split())}"
                    for lost in self._tell:
                        lost()
                return

    def _beat(self) -> None:
        """Say something, and wait for the answer no longer than the lease lasts. Raises OSError."""
        self._say("SELECT 1", self.seconds)

    def _say(self, query: str, seconds: float) -> None:
        line = self._connection.pgconn
        line.send_query(query.encode())
        line.flush()
        until = time.monotonic() + seconds
        while line.is_busy():
            ready = select.select([line.socket], [], [], max(0.0, until - time.monotonic()))[0]
            if not ready:
                raise JournalLost(f"the database has not answered for {seconds:g} s")
            line.consume_input()
        while (result := line.get_result()) is not None:
            if result.status != psycopg().pq.ExecStatus.TUPLES_OK:
                raise JournalLost(result.get_error_message())


def lease_of(url: str, seconds: float, wait: Callable[[str], None] | None = None, holder: str = "") -> Lease:
    """The lease of the run at `url`, taken. Until it is free, and the database answers, `wait` is called
    again and again with why; it returns to try once more, or raises to give up.

    Without `wait`: raises ConfigError if somebody has it or the database cannot be reached.
    """
    lease: Lease | None = None
    outage = Outage()
    while True:
        try:
            lease = lease or Lease(url, seconds, holder)
            if lease.take():
                return lease
            why = f"{lease.holder()} hosts the run"
            if wait is None:
                raise ConfigError(
                    f"journal.url = {shown(url)!r}: another server hosts it, on {lease.holder()}; stop that "
                    "one, choose another database, or start this one with --standby"
                )
        except (Unreachable, JournalLost) as error:
            if lease is not None:
                lease.close()
                lease = None
            if wait is None:
                raise
            outage.tell(error)
            why = UNREACHABLE
        except BaseException:
            if lease is not None:
                lease.close()
            raise
        try:
            wait(why)
        except BaseException:
            if lease is not None:
                lease.close()
            raise
