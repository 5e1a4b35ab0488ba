"""The journal's tables, and the migration steps from older schemas.

A step is the SQL, or a function where SQL is not enough, that makes schema N + 1 of schema N. Released steps
never change. New tables need a new schema with its own step, and a journal of the previous schema in the
tests' data.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from edgeflock.server.database import Database, PostgresDatabase, SqliteDatabase, Tables
from edgeflock.server.ledger.stores.examination import seal
from edgeflock.shared.errors import ConfigError, JournalDamaged, JournalTooNew
from edgeflock.shared.protocol.wire import level


def reorder(db: sqlite3.Connection) -> None:
    """Rewrite all frames that the updates still have."""
    db.create_function("reordered", 1, _reorder_frame, deterministic=True)
    db.execute("UPDATE updates SET frame = reordered(frame) WHERE length(frame) > 0")


def _reorder_frame(frame: bytes) -> bytes:
    """A frame in the new order. An invalid frame stays as it is, since the replay reports it."""
    try:
        fields: list[Any] = msgpack.unpackb(frame)
        fields += (None, 0)[len(fields) - 11 :]  # facts and held, if they are absent
        head, modes = fields[:3], fields[3:5]
        count, indices, octets, loss, samples, pull, facts, held = fields[5:]
        if modes[0] == 3 and not count:  # an empty grid had a byte in that schema
            indices = b""
        rest = [count, indices, octets, level(loss), samples, held, *modes, facts, pull]
        return bytes(msgpack.packb([*head, *rest]))
    except (ValueError, TypeError, msgpack.exceptions.UnpackException):
        return frame


log = logging.getLogger(__name__)

SCHEMA = 13

TABLES: Tables = {
    "meta": "run TEXT NOT NULL, model TEXT NOT NULL, layout BLOB NOT NULL, created REAL NOT NULL, "
    "start BLOB, chain INTEGER NOT NULL DEFAULT 0, data TEXT NOT NULL DEFAULT ''",
    "devices": "id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, ingress INTEGER NOT NULL DEFAULT 0, "
    "egress INTEGER NOT NULL DEFAULT 0, chain INTEGER NOT NULL DEFAULT 0",
    "updates": "version INTEGER PRIMARY KEY, device INTEGER NOT NULL REFERENCES devices, "
    "sequence INTEGER NOT NULL, time REAL NOT NULL, loss REAL, samples INTEGER NOT NULL, frame BLOB, "
    "sum INTEGER NOT NULL DEFAULT 0, chain INTEGER NOT NULL DEFAULT 0, share REAL NOT NULL DEFAULT 1, "
    "judged BLOB",
    "regimes": "rowid INTEGER PRIMARY KEY, version INTEGER NOT NULL, rule TEXT NOT NULL, "
    'learning_rate REAL NOT NULL, "window" INTEGER NOT NULL, average REAL NOT NULL, '
    "base_batch INTEGER NOT NULL, rounds INTEGER NOT NULL, kind TEXT NOT NULL DEFAULT 'settings', "
    "chain INTEGER NOT NULL DEFAULT 0, how TEXT NOT NULL DEFAULT ''",
    "snapshots": "version INTEGER PRIMARY KEY, theta BLOB NOT NULL, average BLOB, "
    "sum INTEGER NOT NULL DEFAULT 0, chain INTEGER NOT NULL DEFAULT 0, memory BLOB",
    "evaluations": "rowid INTEGER PRIMARY KEY, version INTEGER NOT NULL, time REAL NOT NULL, loss REAL, "
    "accuracy REAL, ingress INTEGER NOT NULL, egress INTEGER NOT NULL, chain INTEGER NOT NULL DEFAULT 0, "
    "metrics TEXT NOT NULL DEFAULT ''",
    "adjustments": "rowid INTEGER PRIMARY KEY, version INTEGER NOT NULL, configured REAL NOT NULL, "
    "chosen REAL NOT NULL, chain INTEGER NOT NULL DEFAULT 0",
    "repairs": "rowid INTEGER PRIMARY KEY, version INTEGER NOT NULL, given_up INTEGER NOT NULL, "
    "run TEXT NOT NULL, time REAL NOT NULL, chain INTEGER NOT NULL DEFAULT 0",
}
"""The tables of a new journal."""

_CHAINED = ("meta", "devices", "updates", "regimes", "snapshots", "evaluations", "adjustments")

Step = str | Callable[[sqlite3.Connection], None]
Steps = Mapping[int, tuple[Step, ...]]


_COLUMNS = (
    ("regimes", "how TEXT NOT NULL DEFAULT ''"),
    ("snapshots", "memory BLOB"),
    ("updates", "share REAL NOT NULL DEFAULT 1"),
    ("updates", "judged BLOB"),
    ("evaluations", "metrics TEXT NOT NULL DEFAULT ''"),
    ("meta", "data TEXT NOT NULL DEFAULT ''"),
)


def _add_columns(db: sqlite3.Connection) -> None:
    """Add the columns of schemas 9 to 13, which checksums cover, if they are absent."""
    for table, column in _COLUMNS:
        known = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        if column.split()[0] not in known:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")


STEPS: Steps = {
    # A loss may be no number. A resent update is searched without an index. Averages.
    1: (
        "ALTER TABLE updates RENAME TO older",
        """CREATE TABLE updates (
    version INTEGER PRIMARY KEY, device INTEGER NOT NULL REFERENCES devices, sequence INTEGER NOT NULL,
    time REAL NOT NULL, loss REAL, samples INTEGER NOT NULL, frame BLOB
)""",
        "INSERT INTO updates SELECT * FROM older ORDER BY version",
        "DROP TABLE older",
        "ALTER TABLE evaluations RENAME TO older",
        """CREATE TABLE evaluations (
    version INTEGER NOT NULL, time REAL NOT NULL, loss REAL, accuracy REAL,
    ingress INTEGER NOT NULL, egress INTEGER NOT NULL
)""",
        "INSERT INTO evaluations SELECT * FROM older ORDER BY rowid",
        "DROP TABLE older",
        "ALTER TABLE snapshots ADD COLUMN average BLOB",
        "ALTER TABLE regimes ADD COLUMN average REAL NOT NULL DEFAULT 0",
    ),
    # Updates count by their samples. Two regimes may start at one version, as in late versions of schema 2.
    2: (
        "ALTER TABLE regimes RENAME TO older",
        """CREATE TABLE regimes (
    version INTEGER NOT NULL, rule TEXT NOT NULL, learning_rate REAL NOT NULL, window INTEGER NOT NULL,
    average REAL NOT NULL, base_batch INTEGER NOT NULL
)""",
        "INSERT INTO regimes SELECT *, 0 FROM older ORDER BY rowid",
        "DROP TABLE older",
    ),
    # Rounds.
    3: (
        "ALTER TABLE regimes RENAME TO older",
        """CREATE TABLE regimes (
    version INTEGER NOT NULL, rule TEXT NOT NULL, learning_rate REAL NOT NULL, window INTEGER NOT NULL,
    average REAL NOT NULL, base_batch INTEGER NOT NULL, rounds INTEGER NOT NULL
)""",
        "INSERT INTO regimes SELECT *, 0 FROM older ORDER BY rowid",
        "DROP TABLE older",
    ),
    # Learning rates that operators chose. Late versions of schema 4 made the table at the first one.
    4: (
        "CREATE TABLE IF NOT EXISTS adjustments "
        "(version INTEGER NOT NULL, configured REAL NOT NULL, chosen REAL NOT NULL)",
    ),
    # First models that devices make themselves. They cannot make those of older runs.
    5: ("ALTER TABLE meta ADD COLUMN start BLOB",),
    # Updates whose last fields are optional.
    6: (reorder,),
    # Checksums; why a regime began; what repairs dropped.
    7: (
        "ALTER TABLE regimes ADD COLUMN kind TEXT NOT NULL DEFAULT 'settings'",
        "ALTER TABLE updates ADD COLUMN sum INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE snapshots ADD COLUMN sum INTEGER NOT NULL DEFAULT 0",
        *(f"ALTER TABLE {table} ADD COLUMN chain INTEGER NOT NULL DEFAULT 0" for table in _CHAINED),
        """CREATE TABLE repairs (
    version INTEGER NOT NULL, given_up INTEGER NOT NULL, run TEXT NOT NULL, time REAL NOT NULL,
    chain INTEGER NOT NULL DEFAULT 0
)""",
        _add_columns,
        seal,
    ),
    # Optimizers and their memory. Checksums of snapshots without memory do not change.
    8: (_add_columns,),
    # The share of an update that counts. Checksums of updates that count in full do not change.
    9: (_add_columns,),
    # Metrics of evaluations. Checksums of evaluations without metrics do not change.
    10: (_add_columns,),
    # What samples are. A run that began without a description has none.
    11: (_add_columns,),
    # The reason of a defence. Checksums of updates without one do not change.
    12: (_add_columns,),
}
"""The schema that a step starts from -> its statements."""


def schema_of(db: Database) -> int:
    """The journal's schema, 0 if the database is empty.

    Raises JournalDamaged if it holds something else, JournalTooNew if a later version wrote it, ConfigError
    if it cannot be migrated.
    """
    schema = db.schema()
    if schema > SCHEMA:
        raise JournalTooNew(
            f"{db.path} has journal schema {schema} and this Edgeflock reads up to {SCHEMA}, so a newer one "
            "wrote it; upgrade this one, or begin a run in another directory or database"
        )
    if schema < 0:
        raise JournalDamaged(f"{db.path} is a database, but no journal of a run; name another")
    if 0 < schema < SCHEMA and isinstance(db, PostgresDatabase):
        raise ConfigError(
            f"{db.path} has journal schema {schema}, this Edgeflock's is {SCHEMA}; copy it to a file "
            "with the Edgeflock that wrote it (edgeflock journal copy), open that with this one, and "
            "copy it back"
        )
    return schema


def migrate(
    db: SqliteDatabase, steps: Steps = STEPS, before_commit: Callable[[], None] = lambda: None
) -> None:
    """Migrate an older journal to SCHEMA in one transaction. Raises as `schema_of`.

    `before_commit` is called before the commit, if there is anything to commit. The migration is logged.
    """
    older = schema_of(db)
    if older in (0, SCHEMA):
        return
    began = time.perf_counter()
    db.begin()
    try:
        rows = _rows(db.connection)
        for schema in range(older, SCHEMA):
            for step in steps[schema]:
                if callable(step):
                    step(db.connection)
                else:
                    db.connection.execute(step)
        db.connection.execute(f"PRAGMA user_version = {SCHEMA}")
        before_commit()
        db.commit()
    except BaseException:
        db.rollback()
        raise
    seconds = time.perf_counter() - began
    log.info(
        "%s: migrated from journal schema %d to %d: %s rows in %.1f s",
        db.path,
        older,
        SCHEMA,
        f"{rows:,}",
        seconds,
    )


def _rows(db: sqlite3.Connection) -> int:
    """The number of rows in all tables."""
    tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return sum(int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for (table,) in tables)
