"""A fleet on one machine: N emulated devices and the engine, in virtual time, for one seed.

    result = run_fleet(prepare(file), seed, directory)

The same file and seed give the same result, bit for bit. A run that was cut short goes on from its journal:
the updates that had been computed are taken from there instead of being computed again (interrupted.py says
what that cannot do).

running.py is a run, members.py who takes part in it, watching.py what is found of them; preparing.py loads
and deals out the data. Brings torch.
"""

from edgeflock.devices.emulation.fleet.preparing import FleetObjects, Prepared, prepare
from edgeflock.devices.emulation.fleet.running import FleetResult, run_fleet

__all__ = ["FleetResult", "FleetObjects", "Prepared", "prepare", "run_fleet"]
