"""When updates apply. Each mode is a `Coordinator` in a file: `offer`, `tick` and the like.

A new mode needs a file here and its name in modes.py. Sessions, fleets and Flower strategies do not change.
If a mode gathers updates, the journal records this (`Regime.rounds`), so that a replay groups them alike. A
gate limits how far devices may run ahead of each other (gates.py). Pure: time is an argument. Imports descent
and scheduling.
"""

from edgeflock.server.coordination.cohort import Cohort
from edgeflock.server.coordination.coordinator import Apply, Coordinator, Push, Tasks
from edgeflock.server.coordination.gates import Gate
from edgeflock.server.coordination.modes import MODES, create_coordinator
