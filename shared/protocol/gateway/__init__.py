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
    Blamed,
    Enter,
    Given,
    Gone,
    Knock,
    Lives,
    Ready,
    Shared,
    Spilled,
    Told,
)
from edgeflock.shared.protocol.gateway.of_leaders import (
    GATEWAY,
    OF_LEADERS,
    Ask,
    Change,
    Dealt,
    Denied,
    Done,
    End,
    Entered,
    Held,
    Known,
    Paused,
    Resumed,
    Said,
    Sync,
    Taken,
)

__all__ = [
    "AROUND",
    "GATEWAY",
    "HEAD",
    "LIFE",
    "LONGEST",
    "OF_GATEWAYS",
    "OF_LEADERS",
    "Ask",
    "Blamed",
    "Change",
    "Dealt",
    "Denied",
    "Done",
    "End",
    "Enter",
    "Entered",
    "Given",
    "Gone",
    "Held",
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
    "Taken",
    "Told",
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
