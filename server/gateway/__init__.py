"""A gateway: a process that holds devices' sockets for a leader, and a copy of the model (docs/gateways.md).

`Gateway` is the class of one process. Its sessions are a server's own (sessions/session.py). admission.py
asks the leader what a server's session decides itself, one ticket for each request. upstream.py has the line
to the leader, and the tickets. mirror.py follows the model. A gateway holds no state of record: if it is
lost, each device pulls a whole model.
"""

from edgeflock.server.gateway.app import Gateway, GatewayAddress
from edgeflock.server.gateway.leaders import ClientCertificate
