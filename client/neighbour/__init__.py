"""How a device shares its machine with whoever else uses it: docs/neighbour.md.

    priority     the lowest, of this process
    limits       what settings say may be taken: 25% of a core, 50kB/s
    resting      no more of a core than that
    sensors      what of the machine is looked at: heat, supply, battery, link, owner
    reasons      what of that is a reason to pause, and until when
    pausing      looks now and then, and holds training back meanwhile

`lines.py` limits what the network carries. All but pausing is without event loop.
"""

from edgeflock.client.neighbour.limits import rate_of, share_of
from edgeflock.client.neighbour.pausing import Pausing
from edgeflock.client.neighbour.priority import give_way
from edgeflock.client.neighbour.reasons import rules_of
from edgeflock.client.neighbour.resting import Resting

__all__ = ["Pausing", "Resting", "give_way", "rate_of", "rules_of", "share_of"]
