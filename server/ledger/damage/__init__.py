"""Tools for a journal on a failed disk.

`verify` reports which parts of it are whole. `repair` keeps those and drops the rest.
Only the ledger package's __init__ and backup.py import this. A running server detects damage by itself
(stores/examination.py, chain.walk). Imports all of the ledger.
"""

from edgeflock.server.ledger.damage.repairing import RepairReport, repair
from edgeflock.server.ledger.damage.verifying import VerifyReport, verify
