"""Limits the client's use of a machine in favour of other programs: docs/neighbour.md.

    priority     sets the lowest priority of this process
    limits       the limits in the settings, 25% of a core or 50kB/s, and rests within them
    sensors      reads heat, supply, battery, network link, owner
    reasons      decides whether these are a reason to pause, and until when
    pausing      reads the sensors periodically and pauses training

transport/http.py limits network traffic. Only pausing uses the event loop.
"""

from edgeflock.client.neighbour.limits import Resting, lower_priority, rate_of, share_of
from edgeflock.client.neighbour.pausing import Pausing
from edgeflock.client.neighbour.reasons import rules_of
