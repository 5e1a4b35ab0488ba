"""What a gateway and its leader tell each other, over one WebSocket (docs/gateways.md).

    gateway -> leader    Knock, Enter, Given, Told, Blamed, Gone, Lives, Ready, Shared, Spilled
    leader -> gateway    Sync, Resumed, Change, Known, Entered, Denied, Taken, Held, End, Ask, Paused, Said,
                         Done, Dealt

A message holds any number of items, in order (coding.py). Records of devices travel in them as they came.
Both ends are of one version, and trust each other as far as a credential of the role gateway goes: a leader
looks at what its gateways say, and hangs up on what is none of this.
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
