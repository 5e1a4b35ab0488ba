"""The run in its directory: model, data, identities, and the engine as it was left.

    run                  opens it, or takes it up, and says all that the application needs of it
    model                what it trains and how its server judges it: a torch module, or a file of arrays
    line                 what devices meet when they connect
    given                what a program has at hand that settings cannot name

`line` is also a standby's (standby.py), who has no run yet. Only model imports torch, when it needs it.
"""

from edgeflock.server.hosting.program_objects import ServerObjects
from edgeflock.server.hosting.run import HostedRun, open_run

__all__ = ["ServerObjects", "HostedRun", "open_run"]
