"""An emulated fleet on one machine: N devices and the engine, in virtual time, for one seed.

    result = run_fleet(prepare(file), seed)

The same file and seed give the same result, bit for bit.

running.py has a run, members.py its devices, and watching.py its findings. preparing.py loads the data and
deals them out. The package loads torch.
"""

from edgeflock.devices.emulation.fleet.preparing import FleetObjects, PreparedFleet, prepare
from edgeflock.devices.emulation.fleet.running import FleetResult, run_fleet
