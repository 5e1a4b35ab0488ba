"""Devices behind gateways, at their leader (docs/gateways.md).

`Gateways` sends them the model, and a `GatewayConnection` takes one gateway's items. Each device has a
`RelayedDevice` in place of a session, which takes its updates. At both ends of the connection an `Outbox`
sends items, and `ping` shows that this end is alive.
"""

from edgeflock.server.sessions.gateways.gateway_connection import GatewayConnection
from edgeflock.server.sessions.gateways.gateways import Gateways
from edgeflock.server.sessions.gateways.heartbeat import HANG_SECONDS, ping
from edgeflock.server.sessions.gateways.outbox import Outbox
from edgeflock.server.sessions.gateways.relayed_device import RelayedDevice
