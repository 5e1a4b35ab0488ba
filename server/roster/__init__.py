"""What the server knows of its devices: who they are, whether they are there, what they did and cost.

`Registry` holds a `Device` for each: identity, connection (a table of states) and statistics. `Hub` is told
of every change, for those who watch. `Traffic` counts bytes at the socket, `Relay` hands samples on,
`RateLimiters` bound how fast a device may go on, `Trail` keeps how the run went.
Imports the ledger's records only; knows sessions as a `connection.Line`.
"""

from edgeflock.server.roster.conduct import WINDOW
from edgeflock.server.roster.connection import Connection, Line, Order
from edgeflock.server.roster.hub import Hub
from edgeflock.server.roster.rate_limiter import RateLimiter, RateLimiters
from edgeflock.server.roster.registry import Device, Registry
from edgeflock.server.roster.relay import Parcel, Relay
from edgeflock.server.roster.traffic import Meter, Traffic
from edgeflock.server.roster.trail import Trail

__all__ = [
    "WINDOW",
    "Connection",
    "Device",
    "Hub",
    "Line",
    "Meter",
    "Order",
    "RateLimiter",
    "RateLimiters",
    "Parcel",
    "Registry",
    "Relay",
    "Traffic",
    "Trail",
]
