"""Limits the client's use of a machine in favour of other programs: docs/neighbour.md.

    limits       the limits in the settings, 25% of a core or 50kB/s, and rests within them; the priority
    reasons      reads heat, supply, battery, network link, owner; decides whether these are a reason to pause
    pausing      reads them periodically and pauses training

transport/http.py limits network traffic. Only pausing uses the event loop.
"""

from edgeflock.client.neighbour.limits import Resting, lower_priority, rate_of, share_of
from edgeflock.client.neighbour.pausing import Pausing
from edgeflock.client.neighbour.reasons import rules_of
