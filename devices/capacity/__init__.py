"""Capacity of a run: what a fleet takes of each part, and which part ends first, from measured costs.

costs.py has the costs, fleet.py the question, and need.py what a fleet takes of each part. plan.py has the
number of each part, and shown.py the text. The package does no I/O. It imports numbers and edgeflock.shared
only. docs/scale.md says how far the results can be trusted.
"""

from edgeflock.devices.capacity.fleet import FleetLoad, Machine, ServerParts
from edgeflock.devices.capacity.need import Need, estimate_needs
from edgeflock.devices.capacity.plan import CapacityPlan, largest_fleet, make_plan
from edgeflock.devices.capacity.shown import as_json, lines
