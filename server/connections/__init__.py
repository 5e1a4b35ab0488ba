"""Connections: listening sockets, counts of bytes, and limits before authentication.

`listening.py` listens, for a server and a gateway. `Traffic` counts the bytes at the socket.
`ConnectionLimits` is between the sockets and aiohttp, with a `GuardedConnection` for each connection. It
closes connections whose request or message is not complete in time. It limits the connections without a
token, the connections from one address, and the bytes in unfinished messages of all connections. framing.py
parses the frame headers of RFC 6455, without I/O. Imports nothing of the server.
"""

from edgeflock.server.connections.connection import GuardedConnection
from edgeflock.server.connections.limits import ConnectionLimits, source_of
from edgeflock.server.connections.traffic import Meter, Traffic
