"""Sessions of devices (session.py), and the group commit of their updates to the engine (writer.py).

asyncio meets the engine in these two places only. conversation.py answers records. records.py reads them and
charges their cost. writer.py decides how many updates share a flush. device_admission.py decides which device
joins under which name. The package gateways, above all other modules here, handles what gateways send. A
gateway serves the same sessions, with its own admission and copy of the model (server/gateway). Imports
roster and engine. Nothing here knows how updates are coordinated.
"""

from edgeflock.server.sessions.context import RunHost, ServedModel, SessionContext, UpdateQueue
from edgeflock.server.sessions.device_admission import AdmittedDevice, DeviceAdmission, ServerAdmission
from edgeflock.server.sessions.gateways import (
    HANG,
    GatewayConnection,
    Gateways,
    Outbox,
    RelayedDevice,
    ping,
)
from edgeflock.server.sessions.session import Session
from edgeflock.server.sessions.task_feed import Send, TaskFeed
from edgeflock.server.sessions.writer import PendingUpdate, Writer, settle

__all__ = [
    "HANG",
    "RelayedDevice",
    "DeviceAdmission",
    "SessionContext",
    "GatewayConnection",
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
    "ping",
    "settle",
]
