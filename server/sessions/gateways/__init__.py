"""Devices that come through gateways, at their leader (docs/gateways.md).

`Gateways` tells them of the model, a `GatewayLine` takes what one says, updates.py what comes of its devices'
updates. Each of its devices has a `RelayedDevice` where others have a session. An `Outbox` sends items, and
`beat` pings, at either end of a line. Imports the rest of sessions, which does not know of it.
"""

from edgeflock.server.sessions.gateways.beat import HANG, beat
from edgeflock.server.sessions.gateways.gateways import Gateways
from edgeflock.server.sessions.gateways.line import GatewayLine
from edgeflock.server.sessions.gateways.outbox import Outbox
from edgeflock.server.sessions.gateways.relayed_device import RelayedDevice

__all__ = ["HANG", "RelayedDevice", "GatewayLine", "Gateways", "Outbox", "beat"]
