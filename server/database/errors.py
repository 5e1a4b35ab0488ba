"""Errors of databases: which of them are damage, which are temporary, and their public text."""

import errno
import logging
import re
import sqlite3

from edgeflock.shared.errors import ConfigError, EdgeflockError

log = logging.getLogger(__name__)

UNREACHABLE = "the journal's database does not answer; this server's log says why"
"""The public reason. Only the log names the database's location."""

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"""SQLITE_ERROR: a valid statement fails, so a table or a column is missing."""

_TRANSIENT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


class JournalLost(EdgeflockError, OSError):
    """The database does not answer, or refuses writes of this process.

    Updates without a receipt may be in it or not. The next server of the run finds out.
    """


class Unreachable(ConfigError):
    """The database does not exist, or does not answer now."""


class Outage:
    """Logs why a database does not answer, once for each reason."""

    def __init__(self) -> None:
        self._logged = ""

    def report(self, error: Exception) -> None:
        if str(error) != self._logged:
            self._logged = str(error)
            log.warning("%s", error)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite reports a damaged file or no database. A full disk, say, is no damage."""
    # The low byte is the kind of the error; the others are its details.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def is_transient(error: BaseException | None) -> bool:
    """Whether an error may pass by itself: the database does not answer, or the disk is full."""
    while error is not None:
        if isinstance(error, JournalLost | Unreachable):
            return True
        if isinstance(error, sqlite3.OperationalError) and not is_damage(error):
            return True
        if isinstance(error, OSError) and error.errno in _TRANSIENT:
            return True
        error = error.__cause__
    return False


def redact(url: str) -> str:
    """The URL without its password."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1@", re.sub(r"([?&]password=)[^&]*", r"\1...", url))
