"""The journal's tables, and the number of their schema, which rises with each change of them."""

from edgeflock.server.database import Database, Tables
from edgeflock.shared.errors import ConfigError, JournalDamaged, JournalTooNew

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


def schema_of(db: Database) -> int:
    """SCHEMA, or 0 if the database is empty.

    Raises JournalDamaged if it holds something else, JournalTooNew if a later version wrote it, ConfigError
    if an earlier one did.
    """
    schema = db.schema()
    if schema > SCHEMA:
        raise JournalTooNew(
            f"{db.path} has journal schema {schema} and this Edgeflock reads {SCHEMA} only, so a newer one "
            "wrote it; upgrade this one, or begin a run in another directory or database"
        )
    if schema < 0:
        raise JournalDamaged(f"{db.path} is a database, but no journal of a run; name another")
    if 0 < schema < SCHEMA:
        raise ConfigError(
            f"{db.path} has journal schema {schema} and this Edgeflock reads {SCHEMA} only; open it with the "
            "Edgeflock that wrote it, or begin a run in another directory or database"
        )
    return schema
