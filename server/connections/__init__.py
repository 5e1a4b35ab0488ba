"""Limits on connections before anything that they say is believed: time, memory, how many there are.

`ConnectionLimits` stands between the sockets and aiohttp, with a `GuardedConnection` for each. It hangs up on
requests and messages that are begun and not finished. It bounds how many connections there are before a token
is read, how many come from one address, and how many bytes wait in unfinished messages of all together.
framing.py follows RFC 6455 by the heads of its frames, without I/O. Imports nothing of the server.
"""

from edgeflock.server.connections.connection import GuardedConnection
from edgeflock.server.connections.limits import ConnectionLimits, ConnectionTerms, source_of

__all__ = ["GuardedConnection", "ConnectionLimits", "ConnectionTerms", "source_of"]
