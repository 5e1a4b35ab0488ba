"""Sessions of devices (session.py), and the group commit of their updates to the engine (writer.py).

conversation.py answers records, also those of emulated devices. records.py reads them and charges them to
rate limits. device_admission.py decides which device joins under which name. task_feed.py sends tasks.
sums.py leads devices through secure sums, of which sum_updates.py makes updates. The package gateways
handles what gateways send; no other module here imports it. A gateway serves the same sessions, with its own
admission and copy of the model (server/gateway). Imports roster and engine. Nothing else here depends on the
mode of coordination.
"""

from edgeflock.server.sessions.answers import PendingUpdate, settle
from edgeflock.server.sessions.context import RunHost, ServedModel, SessionContext, UpdateQueue
from edgeflock.server.sessions.conversation import Conversation, DevicePort
from edgeflock.server.sessions.device_admission import AdmittedDevice, DeviceAdmission, ServerAdmission
from edgeflock.server.sessions.gateways import (
    HANG_SECONDS,
    GatewayConnection,
    Gateways,
    Outbox,
    RelayedDevice,
    ping,
)
from edgeflock.server.sessions.session import Session
from edgeflock.server.sessions.sums import SecureSums
from edgeflock.server.sessions.task_feed import Send, ServerTaskFeed, TaskFeed
from edgeflock.server.sessions.writer import Writer
