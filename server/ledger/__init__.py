"""Durable state: the journal, its schemas, and the recovery of an engine from it, bit for bit.

`claimed` holds a run's directory for one process. `open_engine` is the one way to make an engine of a
journal. `Journal` implements the engine's log (engine/log.py). What changes theta is in the journal, or is a
function of it, and is in its chain of checksums. The package `stores`, below all other modules here, has the
stores of rows and their schema. The package `damage`, above all others but backup.py, has `verify` and
`repair` for journals on a failed disk. Imports engine and below.
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
