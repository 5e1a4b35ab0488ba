"""What a server needs for a fleet, and where one server ends: arithmetic with costs that were measured.

costs.py has the costs, need.py what a fleet comes to, storm.py how it returns after an outage, shown.py words
for it. Pure; imports numbers and edgeflock.shared only. docs/scale.md says how far it can be trusted.
"""

from edgeflock.devices.capacity.need import Fleet, Machine, Need, largest, need_of
from edgeflock.devices.capacity.shown import Prices, lines
from edgeflock.devices.capacity.storm import Storm, return_seconds, storm_of

__all__ = [
    "Fleet",
    "Machine",
    "Need",
    "Prices",
    "Storm",
    "largest",
    "lines",
    "need_of",
    "return_seconds",
    "storm_of",
]
