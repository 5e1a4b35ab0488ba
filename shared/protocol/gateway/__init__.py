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
    AROUND,
    HEAD,
    LONGEST,
    Item,
    batch,
    item,
    items,
    message,
    numbers,
    packed,
)
from edgeflock.shared.protocol.gateway.marks import LIFE, between, first_mark, further
from edgeflock.shared.protocol.gateway.of_gateways import (
    OF_GATEWAYS,
    DeviceRefused,
    DeviceTelemetry,
    DeviceUpdate,
    Enter,
    Gone,
    Knock,
    Lives,
    Ready,
    Shared,
    Spilled,
)
from edgeflock.shared.protocol.gateway.of_leaders import (
    GATEWAY,
    OF_LEADERS,
    AliveQuery,
    Change,
    Dealt,
    Denied,
    Done,
    End,
    Entered,
    Known,
    Paused,
    Resumed,
    Said,
    Sync,
    UpdateHeld,
    UpdateTaken,
)

__all__ = [
    "AROUND",
    "GATEWAY",
    "HEAD",
    "LIFE",
    "LONGEST",
    "OF_GATEWAYS",
    "OF_LEADERS",
    "AliveQuery",
    "DeviceRefused",
    "Change",
    "Dealt",
    "Denied",
    "Done",
    "End",
    "Enter",
    "Entered",
    "DeviceUpdate",
    "Gone",
    "UpdateHeld",
    "Item",
    "Knock",
    "Known",
    "Lives",
    "Paused",
    "Ready",
    "Resumed",
    "Said",
    "Shared",
    "Spilled",
    "Sync",
    "UpdateTaken",
    "DeviceTelemetry",
    "batch",
    "between",
    "first_mark",
    "further",
    "item",
    "items",
    "message",
    "numbers",
    "packed",
]
