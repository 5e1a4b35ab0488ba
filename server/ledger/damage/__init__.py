"""For people whose disk failed: `verify` tells what of a journal is whole, `repair` keeps that and gives up
the rest.

Nothing of the ledger imports this but its door: a server that starts, or goes on, finds by itself what it
meets (stores/examination.py, chain.walk). Imports all of the ledger.
"""

from edgeflock.server.ledger.damage.repairing import Repaired, repair
from edgeflock.server.ledger.damage.verifying import Verified, verify

__all__ = ["Repaired", "Verified", "repair", "verify"]
