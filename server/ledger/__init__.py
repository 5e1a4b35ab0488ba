"""The life of a journal (server/journal): recovery of an engine from it, bit for bit; backups and repairs.

`claim_run` holds a run's directory for one process. `open_engine` is the one way to make an engine of a
journal. `verify` reports which parts of a journal on a failed disk are whole, and `repair` keeps those and
drops the rest; a running server detects damage by itself. Imports engine and below.
"""

from edgeflock.server.ledger.backup import BackupReport, CopyReport, back_up, copy, restore
from edgeflock.server.ledger.claim import Claim, Waiting, claim_run, is_shared
from edgeflock.server.ledger.offered import BASE, FIRST_MODEL, save_base, save_first_model
from edgeflock.server.ledger.opening import open_engine
from edgeflock.server.ledger.recovery import rebuild_model
from edgeflock.server.ledger.repairing import RepairReport, repair
from edgeflock.server.ledger.suspects import Suspect, largest_step
from edgeflock.server.ledger.verifying import VerifyReport, verify
