"""The right to write a journal in PostgreSQL. One process at a time has it, even if others fail.

The lease is an advisory lock and an epoch. A connection of its own holds the lock. Each new holder raises the
epoch by one, and every transaction of the journal checks it. The holder sends a query every third of the
lease's seconds. PostgreSQL ends a connection that is silent for all of them (idle_session_timeout), because
its process is gone, paused or cut off. That frees the lock, and the next holder raises the epoch. A former
holder that wakes up finds another epoch and writes nothing. No clocks are compared.

A holder that gets no answer for that long gives up by itself, and calls `lost`.
"""

import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from edgeflock.server.database.database import UNREACHABLE, JournalLost, Outage, Unreachable, redact
from edgeflock.server.database.postgres import PostgresDatabase, psycopg
from edgeflock.shared.errors import InUse, one_line

_LOCK = "hashtextextended('edgeflock ' || current_schema(), 0)"
"""A lock for each schema: locks belong to the database, and a run to a schema."""

_RELEASE_SECONDS = 1.0
"""Seconds that a process waits at its end for the database to release the lock."""


class Lease:
    """`acquire` asks for it. It ends with `close`, or when the database or this process stops answering."""

    def __init__(self, url: str, seconds: float, holder: str = "") -> None:
        """`holder` is shown to other processes. Raises ConfigError if the database cannot be reached."""
        self.seconds = seconds
        self.epoch = 0
        self._holder = holder or socket.gethostname()
        self._loss_reason = ""
        self._callbacks: list[Callable[[], None]] = []
        self._closing = threading.Event()
        self._heartbeat: threading.Thread | None = None
        self._db = PostgresDatabase(url, "edgeflock lease")

    def acquire(self) -> bool:
        """Try to get the lease. Returns whether this process has it from now on. Raises JournalLost."""
        with self._db.map_errors():
            self._ping()  # it waits no longer than the lease lasts
        if self._db.row(f"SELECT pg_try_advisory_lock({_LOCK})") != (True,):
            return False
        # Before anything else: if this takes long, another process may take the lock.
        self._db.set_timeout("idle_session", self.seconds)
        self._db.set_timeout("statement", 0)
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS lease (schema BIGINT NOT NULL, epoch BIGINT NOT NULL, "
            "holder TEXT NOT NULL)"
        )
        self._db.execute("INSERT INTO lease SELECT 0, 0, '' WHERE NOT EXISTS (SELECT FROM lease)")
        # This waits for an open transaction of the former holder.
        raised = self._db.row("UPDATE lease SET epoch = epoch + 1, holder = ? RETURNING epoch", self._holder)
        (self.epoch,) = raised or (0,)
        self._heartbeat = threading.Thread(target=self._run_heartbeat, name="edgeflock-lease", daemon=True)
        self._heartbeat.start()
        return True

    def holder(self) -> str:
        """The present or last holder; empty if there was none. Raises JournalLost."""
        if self._db.row("SELECT to_regclass('lease')") == (None,):
            return ""
        (holder,) = self._db.row("SELECT holder FROM lease") or ("",)
        return str(holder)

    def add_loss_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` from another thread if the lease ends before `close`; at once if it has ended."""
        self._callbacks.append(callback)
        if self._loss_reason:
            callback()

    def loss_reason(self) -> str:
        """Why the lease has ended. Empty: it has not."""
        return self._loss_reason

    def takeover_message(self) -> str:
        """The message once another epoch has begun."""
        return f"another server hosts the run since ({self._holder} had epoch {self.epoch})"

    def close(self) -> None:
        """Release the lease at once: PostgreSQL takes a moment to notice a closed connection."""
        self._closing.set()
        if self._heartbeat is not None:
            self._heartbeat.join()
            with suppress(OSError, psycopg().Error):  # without an answer, it ends by itself
                self._query(f"SELECT pg_advisory_unlock({_LOCK})", min(_RELEASE_SECONDS, self.seconds))
        self._db.close()

    def _run_heartbeat(self) -> None:
        while not self._closing.wait(self.seconds / 3):
            try:
                self._ping()
            except (OSError, psycopg().Error) as error:
                if not self._closing.is_set():
                    self._loss_reason = f"the lease of the run is lost: {one_line(error)}"
                    for callback in self._callbacks:
                        callback()
                return

    def _ping(self) -> None:
        """Send a query, and wait for the answer no longer than the lease lasts. Raises OSError."""
        self._query("SELECT 1", self.seconds)

    def _query(self, query: str, seconds: float) -> None:
        connection = self._db.connection.pgconn
        connection.send_query(query.encode())
        connection.flush()
        until = time.monotonic() + seconds
        while connection.is_busy():
            ready = select.select([connection.socket], [], [], max(0.0, until - time.monotonic()))[0]
            if not ready:
                raise JournalLost(f"the database has not answered for {seconds:g} s")
            connection.consume_input()
        while (result := connection.get_result()) is not None:
            if result.status != psycopg().pq.ExecStatus.TUPLES_OK:
                raise JournalLost(result.get_error_message())


def lease_of(url: str, seconds: float, wait: Callable[[str], None] | None = None, holder: str = "") -> Lease:
    """Take the lease of the run at `url`.

    Until it is free and the database answers, `wait` is called repeatedly with the reason. It returns to
    try again, or raises to give up.
    Without `wait`: raises ConfigError if another has the lease or the database cannot be reached.
    """
    lease: Lease | None = None
    outage = Outage()
    while True:
        try:
            try:
                lease = lease or Lease(url, seconds, holder)
                if lease.acquire():
                    return lease
                reason = f"{lease.holder()} hosts the run"
                if wait is None:
                    raise InUse(
                        f"journal.url = {redact(url)!r}: another server hosts it, on {lease.holder()}; stop "
                        "that one, choose another database, or start this one with --standby"
                    )
            except (Unreachable, JournalLost) as error:
                if lease is not None:
                    lease.close()
                    lease = None
                if wait is None:
                    raise
                outage.report(error)
                reason = UNREACHABLE
            wait(reason)
        except BaseException:
            if lease is not None:
                lease.close()
            raise
