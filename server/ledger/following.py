"""Follow a run that another server leads: replay its journal, so that a takeover takes no time.

A follower reads the database as of one moment, repeatedly, and writes nothing.
"""

import logging
import sqlite3
import time
from contextlib import closing

from edgeflock.server.database import PostgresReader
from edgeflock.server.descent import Part, Place
from edgeflock.server.ledger.contents import Contents
from edgeflock.server.ledger.recovery import ReplayedJournal, follow
from edgeflock.server.ledger.stores.examination import examine
from edgeflock.server.ledger.stores.migrations import schema_of
from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.model.layout import Layout

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
