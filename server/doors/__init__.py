"""What a connection may cost before anything of it is believed: time, memory, a place.

`Doors` stands between the sockets and aiohttp: one `Door` a connection. It hangs up on requests and messages
that are begun and not finished, bounds how many connections there are before a token is read and from one
address, and how many bytes wait in unfinished messages of all connections together. framing.py follows RFC
6455 by the heads of its frames, without I/O. Imports nothing of the server.
"""

from edgeflock.server.doors.door import Door
from edgeflock.server.doors.doors import Doors, Terms, source_of

__all__ = ["Door", "Doors", "Terms", "source_of"]
