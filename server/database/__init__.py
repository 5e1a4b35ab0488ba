"""One way to databases: SQLite files and PostgreSQL, with the same statements, rows and errors.

`database.Database` is what both have in common, sqlite.py and postgres.py connect, and errors.py says which
failure is which. lease.py holds the right to write to a PostgreSQL database. The journal (server/journal) and
the register of devices (server/identity) keep their tables with it. Imports edgeflock.shared only.
"""

from edgeflock.server.database.database import (
    UNREACHABLE,
    URL_FILE,
    Database,
    JournalLost,
    Outage,
    Tables,
    Unreachable,
    columns,
    is_transient,
    redact,
)
from edgeflock.server.database.lease import Lease, lease_of
from edgeflock.server.database.postgres import PostgresDatabase, PostgresReader
from edgeflock.server.database.sqlite import SUFFIXES, SqliteDatabase, map_sqlite_errors
