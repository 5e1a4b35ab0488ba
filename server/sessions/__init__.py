"""A device's line to the engine: its WebSocket (session), and the group commit behind all of them (writer).

The two places where asyncio meets the engine. A new record is answered in session.py; how many updates share
a flush is writer.py's. Imports roster and engine; nothing here knows how updates are coordinated.
"""

from edgeflock.server.sessions.host import Host
from edgeflock.server.sessions.session import Session
from edgeflock.server.sessions.writer import Held, Writer, settle

__all__ = ["Held", "Host", "Session", "Writer", "settle"]
