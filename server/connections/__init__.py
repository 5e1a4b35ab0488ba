"""Limits on connections before authentication: their time, their memory and their number.

`ConnectionLimits` is between the sockets and aiohttp, with a `GuardedConnection` for each connection. It
closes connections whose request or message is not complete in time. It limits the connections without a
token, the connections from one address, and the bytes in unfinished messages of all connections.
framing.py parses the frame headers of RFC 6455, without I/O. Imports nothing of the server.
"""

from edgeflock.server.connections.connection import GuardedConnection
from edgeflock.server.connections.limits import ConnectionLimits, ConnectionTerms, source_of

__all__ = ["GuardedConnection", "ConnectionLimits", "ConnectionTerms", "source_of"]
