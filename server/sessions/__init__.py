"""A device's line to the engine: its WebSocket (session), and the group commit behind all of them (writer).

The two places where asyncio meets the engine. A new record is answered in conversation.py; which may come,
and what they cost, is records.py's, how many updates share a flush writer.py's, who is let in under which
name desk.py's. What gateways say is a room of its own, gateways, above all others here. A gateway serves the
same sessions, with a desk and a copy of the model of its own (server/gateway). Imports roster and engine;
nothing here knows how updates are coordinated.
"""

from edgeflock.server.sessions.context import RunHost, ServedModel, SessionContext, UpdateQueue
from edgeflock.server.sessions.device_admission import AdmittedDevice, DeviceAdmission, ServerAdmission
from edgeflock.server.sessions.gateways import HANG, GatewayLine, Gateways, Outbox, RelayedDevice, beat
from edgeflock.server.sessions.session import Session
from edgeflock.server.sessions.task_feed import Send, TaskFeed
from edgeflock.server.sessions.writer import PendingUpdate, Writer, settle

__all__ = [
    "HANG",
    "RelayedDevice",
    "DeviceAdmission",
    "SessionContext",
    "GatewayLine",
    "Gateways",
    "PendingUpdate",
    "RunHost",
    "Outbox",
    "ServerAdmission",
    "AdmittedDevice",
    "UpdateQueue",
    "Send",
    "Session",
    "TaskFeed",
    "ServedModel",
    "Writer",
    "beat",
    "settle",
]
