"""Connections to PostgreSQL, and the errors of those that fail."""

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from edgeflock.shared.errors import ConfigError, EdgeflockError, JournalDamaged
from edgeflock.shared.extras import install_command

if TYPE_CHECKING:
    from psycopg import Connection

log = logging.getLogger(__name__)

TIMEOUT = 5
"""Seconds to wait for a database to accept a connection."""


class JournalLost(EdgeflockError, OSError):
    """The database does not answer, or refuses writes of this process.

    Updates without a receipt may be in it or not. The next server of the run finds out.
    """


class LossReason(Protocol):
    """Knows why a connection may have been cut."""

    def loss_reason(self) -> str: ...


def psycopg() -> ModuleType:
    """The psycopg module. Raises ConfigError if it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError(
            f"journal.url is a PostgreSQL database, which needs: {install_command('postgres')}"
        ) from error
    return psycopg


def redact(url: str) -> str:
    """The URL without its password."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1@", re.sub(r"([?&]password=)[^&]*", r"\1...", url))


def connect(url: str, application: str) -> "Connection[Any]":
    """A connection that commits each statement by itself by default.

    `application` is its name in the database's lists. Raises ConfigError, Unreachable if waiting may help.
    """
    driver = psycopg()
    try:
        options = driver.conninfo.conninfo_to_dict(url)
        # Of several hosts choose the one that takes writes, which a standby of the database does not.
        defaults = {
            "application_name": application,
            "connect_timeout": TIMEOUT,
            "target_session_attrs": "read-write",
            "keepalives_idle": TIMEOUT,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 3000 * TIMEOUT,
        }
        connection: Connection[Any] = driver.connect(**{**defaults, **options}, autocommit=True)
    except driver.Error as error:
        raise Unreachable(
            f"journal.url: {redact(url)} cannot be reached: {' '.join(str(error).split())}"
        ) from error
    try:
        with map_errors(redact(url)):
            _check_schema(connection, url)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_schema(connection: "Connection[Any]", url: str) -> None:
    """Raises ConfigError if no schema of the search path exists."""
    query = "SELECT current_schema(), current_setting('search_path')"
    schema, searched = connection.execute(query).fetchone() or (None, "")
    if schema is None:
        raise ConfigError(
            f"journal.url: {redact(url)} has no schema that its user may use: search_path names {searched}; "
            f"create it in that database (CREATE SCHEMA {searched}), or name one that exists"
        )


class Unreachable(ConfigError):
    """The database does not exist, or does not answer now."""


UNREACHABLE = "the journal's database does not answer; this server's log says why"
"""The public reason. Only the log names the database's location."""


class Outage:
    """Logs why a database does not answer, once for each reason."""

    def __init__(self) -> None:
        self._logged = ""

    def report(self, error: Exception) -> None:
        if str(error) != self._logged:
            self._logged = str(error)
            log.warning("%s", error)


def interrupt(connection: "Connection[Any]") -> None:
    """End all waits for an answer on this connection, in other threads, too."""
    with suppress(OSError, psycopg().Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


@contextmanager
def map_errors(path: str, lease: LossReason | None = None) -> Iterator[None]:
    """Convert psycopg's errors of the database `path` to JournalLost, JournalDamaged or ConfigError."""
    driver = psycopg()
    try:
        yield
    except (driver.errors.UndefinedTable, driver.errors.UndefinedColumn) as error:
        raise JournalDamaged(f"{path} is damaged, or no journal: {' '.join(str(error).split())}") from error
    except driver.errors.InsufficientPrivilege as error:
        raise ConfigError(
            f"journal.url: {path}: {error.diag.message_primary or error}; let its user own the schema, or "
            "allow it to write there (GRANT USAGE, CREATE ON SCHEMA ... TO ...)"
        ) from error
    except driver.Error as error:
        reason = lease.loss_reason() if lease is not None else ""
        raise JournalLost(f"{path}: {reason or ' '.join(str(error).split())}") from error
