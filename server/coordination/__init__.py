"""When updates apply: a file a mode, all of them a `Coordinator`: `offer`, `arrived`, `left`, `tick`.

A new one is a file here and its name in modes.py; sessions, fleets and Flower strategies need not know. Of
one that gathers updates the journal must, too (`Regime.rounds`), so that a replay groups them alike. How far
devices may run ahead of each other a gate says (gates.py). Pure: time is an argument. Imports descent and
scheduling.
"""

from edgeflock.server.coordination.coordinator import Apply, Coordinator, Push, Tasks, Turns
from edgeflock.server.coordination.gates import GATES, Gate, gate_of
from edgeflock.server.coordination.modes import MODES, coordinator_of

__all__ = [
    "GATES",
    "MODES",
    "Apply",
    "Coordinator",
    "Gate",
    "Push",
    "Tasks",
    "Turns",
    "coordinator_of",
    "gate_of",
]
