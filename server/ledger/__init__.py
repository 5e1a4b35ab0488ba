"""What is durable: the journal, its schemas, and the way back from it to an engine, bit for bit.

`claimed` is a run's directory as one process's own; `open_engine` makes the engine of a journal, and is the
one way to do so. `Journal` implements what the engine wants of a log (engine/log.py). What changes theta must
be in the journal or a function of it, and in its chain of checksums. Where rows lie, and their schema, is a
room of its own, stores, below all others here. `verify` and `repair` are for people whose disk failed, and
another, damage, above all others but backup.py. Imports engine and below.
"""

from edgeflock.server.ledger.backup import Copied, back_up, restore
from edgeflock.server.ledger.claim import Claim, Waiting, claimed
from edgeflock.server.ledger.copying import Moved, copy
from edgeflock.server.ledger.damage import Repaired, Verified, repair, verify
from edgeflock.server.ledger.journal import Journal
from edgeflock.server.ledger.offered import OFFERED, keep_offered, write_whole
from edgeflock.server.ledger.place import is_shared, passes
from edgeflock.server.ledger.records import DeviceTotals
from edgeflock.server.ledger.recovery import open_engine
from edgeflock.server.ledger.stores.chain import kept
from edgeflock.server.ledger.stores.dialect import in_postgres
from edgeflock.server.ledger.stores.links import (
    PATIENCE,
    UNREACHABLE,
    JournalLost,
    Outage,
    Unreachable,
    connected,
    named,
    shown,
    shut,
)
from edgeflock.server.ledger.suspects import Suspect, largest_step

__all__ = [
    "OFFERED",
    "PATIENCE",
    "UNREACHABLE",
    "DeviceTotals",
    "Claim",
    "Copied",
    "Journal",
    "JournalLost",
    "Moved",
    "Outage",
    "Repaired",
    "Suspect",
    "Unreachable",
    "Verified",
    "Waiting",
    "back_up",
    "claimed",
    "connected",
    "copy",
    "is_shared",
    "keep_offered",
    "in_postgres",
    "kept",
    "largest_step",
    "named",
    "shown",
    "shut",
    "write_whole",
    "open_engine",
    "passes",
    "repair",
    "restore",
    "verify",
]
