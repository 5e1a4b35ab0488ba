"""A journal in a PostgreSQL database.

A group of updates is one INSERT of arrays, in a transaction that is valid only during its lease's epoch
(server/database/lease.py). So a replaced server cannot write any more.
"""

from collections.abc import Callable

from edgeflock.server.database import JournalLost, Lease, PostgresDatabase
from edgeflock.server.journal.stores.examination import Examination, examine
from edgeflock.server.journal.stores.schema import schema_of
from edgeflock.shared.errors import ConfigError, JournalDamaged


class PostgresStore(PostgresDatabase):
    """The journal of a run, to be written while the lease lasts."""

    def __init__(self, url: str, lease: Lease) -> None:
        """`lease` is this process's, and is closed with the store.

        Raises ConfigError if the database cannot store durably, JournalDamaged, JournalTooNew.
        """
        self.examination = Examination()
        self._lease = lease
        try:
            super().__init__(url, "edgeflock journal")
        except BaseException:
            lease.close()
            raise
        try:
            self._set_up()
            if schema_of(self):
                self.examination = examine(self)
                if self.examination.damage:
                    raise JournalDamaged(f"{self.path}: {self.examination.damage[0]}")
            self.add_loss_callback(self.interrupt)
        except BaseException:
            self.close()
            raise

    def _set_up(self) -> None:
        fsync, encoding = self.row("SELECT current_setting('fsync'), current_setting('server_encoding')") or (
            "",
            "",
        )
        if fsync != "on":
            raise ConfigError(f"{self.path} has fsync = {fsync}, so nothing in it is durable; set it to on")
        if encoding != "UTF8":
            raise ConfigError(
                f"{self.path} is encoded in {encoding}; make one with: createdb -E UTF8 -T template0"
            )
        self.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
        )
        # A statement that times out while it waits for a standby would count as committed.
        self.set_timeout("statement", 0)
        # A process that stops in the middle of a transaction must not block the next one.
        self.set_timeout("idle_in_transaction_session", self._lease.seconds)

    def begin(self) -> None:
        if self.in_transaction:
            return
        # In one message: in a psycopg pipeline PostgreSQL 15 forgets the timeout of _set_up.
        begun = f"BEGIN; SELECT FROM lease WHERE epoch = {self._lease.epoch} FOR SHARE"
        with self.map_errors():
            mine = self.connection.execute(begun.encode())
            mine.nextset()
            if mine.rowcount != 1:
                self.rollback()
                raise JournalLost(f"{self.path}: {self._lease.takeover_message()}")

    def loss_reason(self) -> str:
        return self._lease.loss_reason()

    def add_loss_callback(self, callback: Callable[[], None]) -> None:
        self._lease.add_loss_callback(callback)

    def close(self) -> None:
        self._lease.close()
        super().close()
