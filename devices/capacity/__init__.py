"""What a fleet takes of each part of a run, and where they end: arithmetic with costs that were measured.

costs.py has the costs, fleet.py what is asked for, need.py what a fleet comes to at each part, plan.py how
many of each, storm.py how it returns after an outage, shown.py words for it. Pure; imports numbers and
edgeflock.shared only. docs/scale.md says how far it can be trusted.
"""

from edgeflock.devices.capacity.fleet import FleetLoad, Machine, ServerParts
from edgeflock.devices.capacity.need import Need, needs_of, return_seconds
from edgeflock.devices.capacity.plan import CapacityPlan, largest, plan_of
from edgeflock.devices.capacity.shown import Prices, as_json, lines
from edgeflock.devices.capacity.storm import Storm, storm_of

__all__ = [
    "FleetLoad",
    "Machine",
    "Need",
    "ServerParts",
    "CapacityPlan",
    "Prices",
    "Storm",
    "as_json",
    "largest",
    "lines",
    "needs_of",
    "plan_of",
    "return_seconds",
    "storm_of",
]
