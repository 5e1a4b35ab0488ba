"""A process that holds devices' sockets for a leader, and the model that they ask for (docs/gateways.md).

`Gateway` is one process's. Its sessions are a server's own (sessions/session.py): where that has a desk, a
writer and an engine, here are desk.py, which asks the leader who may come in, upstream.py, which hands on
their updates, and mirror.py, which follows its model. Of the devices that upstream.py stands for, present.py
knows the lines, and waiting.py what they wait for. Nothing here is truth: a gateway that is lost costs
its devices a whole model each.
"""

from edgeflock.server.gateway.app import Gateway, GatewayAddress
from edgeflock.server.gateway.leaders import Shown

__all__ = ["Gateway", "GatewayAddress", "Shown"]
