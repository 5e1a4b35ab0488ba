"""Limits the client's use of a machine in favour of other programs: docs/neighbour.md.

    priority     sets the lowest priority of this process
    limits       parses the limits in the settings: 25% of a core, 50kB/s
    resting      limits processor time; allowance: a rate per second
    sensors      reads heat, supply, battery, network link, owner
    reasons      decides whether these are a reason to pause, and until when
    pausing      reads the sensors periodically and pauses training

transport/rate_limit.py limits network traffic. Only pausing uses the event loop.
"""

from edgeflock.client.neighbour.limits import rate_of, share_of
from edgeflock.client.neighbour.pausing import Pausing
from edgeflock.client.neighbour.priority import lower_priority
from edgeflock.client.neighbour.reasons import rules_of
from edgeflock.client.neighbour.resting import Resting

__all__ = ["Pausing", "Resting", "lower_priority", "rate_of", "rules_of", "share_of"]
