"""Devices behind gateways, at their leader (docs/gateways.md).

`Gateways` sends them the model, and a `GatewayConnection` takes one gateway's items. updates.py handles its
devices' updates. Each device has a `RelayedDevice` in place of a session. At both ends of a line an `Outbox`
sends items and `ping` keeps it alive. Imports the other modules of sessions, which do not import it.
"""

from edgeflock.server.sessions.gateways.beat import HANG, ping
from edgeflock.server.sessions.gateways.gateways import Gateways
from edgeflock.server.sessions.gateways.line import GatewayConnection
from edgeflock.server.sessions.gateways.outbox import Outbox
from edgeflock.server.sessions.gateways.relayed_device import RelayedDevice

__all__ = ["HANG", "RelayedDevice", "GatewayConnection", "Gateways", "Outbox", "ping"]
