"""Messages between a gateway and its leader, over one WebSocket (docs/gateways.md).

    gateway -> leader    Knock, Enter, DeviceUpdate, DeviceTelemetry, DeviceRefused, Gone, Lives, Ready,
                         Shared, Spilled
    leader -> gateway    Sync, Resumed, Change, Known, Entered, Denied, UpdateTaken, UpdateHeld, End,
                         AliveQuery, Paused, Said, Done, Dealt

A message holds any number of items, in order (coding.py). Records of devices travel in them unchanged. Both
ends have one version. A leader checks the items of its gateways, and closes the connection on any other
input. They trust each other as far as a credential of the role gateway allows.
"""

from edgeflock.shared.protocol.gateway.coding import (
    HEAD,
    LONGEST,
    OVERHEAD,
    Item,
    batch,
    item,
    items,
    message,
    numbers,
    pack,
)
from edgeflock.shared.protocol.gateway.marks import LIFE, advance, changes_between, first_mark
from edgeflock.shared.protocol.gateway.of_gateways import (
    OF_GATEWAYS,
    AccessRequest,
    AliveReply,
    DeviceRefused,
    DeviceTelemetry,
    DeviceUpdate,
    Enter,
    Ready,
    SessionEnded,
    Shared,
    Spilled,
)
from edgeflock.shared.protocol.gateway.of_leaders import (
    GATEWAY,
    OF_LEADERS,
    AccessGranted,
    AliveQuery,
    Change,
    DealtSamples,
    Denied,
    DeviceRecord,
    Done,
    End,
    Entered,
    Paused,
    Resumed,
    Sync,
    UpdateHeld,
    UpdateTaken,
)

__all__ = [
    "OVERHEAD",
    "GATEWAY",
    "HEAD",
    "LIFE",
    "LONGEST",
    "OF_GATEWAYS",
    "OF_LEADERS",
    "AliveQuery",
    "DeviceRefused",
    "Change",
    "DealtSamples",
    "Denied",
    "Done",
    "End",
    "Enter",
    "Entered",
    "DeviceUpdate",
    "SessionEnded",
    "UpdateHeld",
    "Item",
    "AccessRequest",
    "AccessGranted",
    "AliveReply",
    "Paused",
    "Ready",
    "Resumed",
    "DeviceRecord",
    "Shared",
    "Spilled",
    "Sync",
    "UpdateTaken",
    "DeviceTelemetry",
    "batch",
    "changes_between",
    "first_mark",
    "advance",
    "item",
    "items",
    "message",
    "numbers",
    "pack",
]
