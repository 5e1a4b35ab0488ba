"""The server's records of its devices: identity, presence, statistics and traffic.

`Registry` holds a `Device` for each: its name, connection (a table of states) and statistics. `Hub` records
every change, for monitors. `Relay` forwards samples, `RateLimiters` bound the devices' rates, and `Trail`
keeps the run's history. It sees sessions as a `connection.OpenSession`.
"""

from edgeflock.server.roster.connection import Connection, OpenSession, Order
from edgeflock.server.roster.hub import Hub, Trail
from edgeflock.server.roster.rate_limiter import RateLimiter, RateLimiters
from edgeflock.server.roster.registry import WINDOW, Device, Registry
from edgeflock.server.roster.relay import Relay, SampleRecord
