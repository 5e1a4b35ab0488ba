"""What the server knows of its devices: who they are, whether they are there, what they did and cost.

`Registry` holds a `Device` for each: identity, connection (a table of states) and statistics. `Hub` is told
of every change, for whoever watches. `Traffic` counts bytes at the socket, `Relay` hands samples on.
Imports the ledger's records only; knows sessions as a `connection.Line`.
"""

from edgeflock.server.roster.connection import Connection, Line
from edgeflock.server.roster.hub import Hub
from edgeflock.server.roster.registry import Device, Registry
from edgeflock.server.roster.relay import Relay
from edgeflock.server.roster.traffic import Meter, Traffic

__all__ = ["Connection", "Device", "Hub", "Line", "Meter", "Registry", "Relay", "Traffic"]
