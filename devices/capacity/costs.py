"""Measured costs of a run's parts, each with its source. The table in docs/scale.md has the same costs.

Quoted names are headings in docs/results. Seconds are processor time of a core like those there. With the
default settings, the model is sent as lossy differences, and updates are signs on a grid.
"""

# "How the cost of an update grows": the entries of an update touch cache lines of theta and of its staleness.
PUSH_SECONDS = 94e-6
"""One push, without the lines it touches and its commit. From c = .001 and .1 at 211,690 parameters."""
CACHED_LINE_SECONDS, UNCACHED_LINE_SECONDS = 38e-9, 87e-9
"""One cache line of parameters that an update touches: in the processor's caches, and in memory."""
LINE_PARAMETERS = 16
CACHED_BYTES = 270e6
"""Staleness up to this size counts as near. Between 14 MB and 670 (10 million parameters): not measured."""
COMMIT_SECONDS = 354e-6
"""The commit of a group, which its updates share. Measured with one device and with sixteen."""
# "Gateways", connected devices: eight runs with 100 and 1,000 devices, to which these four were fitted.
GROUP_SECONDS = 6.5e-3
"""Updates that arrive within this time form a group. A commit took so long, with disk and other work."""
WAKE_SECONDS = 1.55e-3
"""A group that finds the server idle: the wake-up, with caches that other work has used since."""
RELAYED_WAKE_SECONDS = 1.2e-3
"""The same for updates that come through a gateway, at the server and at the gateway."""
FOLLOW_WAKE_SECONDS = 0.4e-3
"""The same at another gateway, which receives the updates as changes to follow."""

# "Cost at the server" of lossy differences.
PASS_SECONDS = 56e-6 / 211_690
"""One parameter of the pass over the model that an answer takes."""
ENCODE_SECONDS, DECODE_SECONDS = 116e-6 / 297, 122e-6 / 297
"""One entry of an answer, and one of an update, on the grid."""

# "Exact differences": the record with 4, 16 and 200 devices, exact answers.
EXACT_BYTES, EXACT_GROWTH = 8.2, 0.6
"""Bytes of an answer per entry of an update, and the power of the devices with which they grow. The devices
change the same parameters."""
EXACT_SECONDS = 0.7e-3 / 20_000 / 4.7
"""Seconds for one byte of an exact answer. 20,000 indices take 0.7 ms."""
FULL_MODEL_BYTES = 1.0
"""One parameter of a whole model, for a device that holds none. An exact one takes four times as much."""

# "Gateways", cost, of 2026-11-23 at a load of 5: one device's answers are counted apart from the other's.
RELAYED_PUSH_SECONDS = 72e-6
"""One push through a gateway, at the server, without decoding, the lines it touches and its commit."""
GATEWAY_SECONDS = 80e-6
"""One push at its gateway, without an answer."""
TLS_SECONDS = 100e-6
"""One update and its answer over TLS. Fitted to 1,000 devices with and without TLS, and to 10,000."""
FOLLOW_SECONDS, FOLLOW_ENTRY_SECONDS = 12e-6, 6e-9
"""At each gateway: one version that the gateway follows, and one entry of it."""
NOTIFY_SECONDS = 2e-6
"""At the server: sending one version to one gateway."""
LINK_UP_BYTES, LINK_RECEIPT_BYTES, LINK_DOWN_BYTES, LINK_ENTRY_BYTES = 16, 10, 25, 8
"""Bytes on gateways' links: around an update, its receipt, around a message to each gateway of what changed,
and an entry of that message."""

# "SGD, the square root of P entries", digits, four devices: bytes over entries.
ENTRY_UP_BYTES, ENTRY_DOWN_BYTES = 0.86, 0.97
# "Fields that are left out".
FRAMING_UP_BYTES, FRAMING_DOWN_BYTES = 25.8, 20.6
"""Bytes around the entries, with WebSocket's headers."""
HEADER_UP_BYTES = 8
"""The part of these that is WebSocket's. The journal does not keep it."""
# "What authentication costs".
TLS_BYTES = 22
"""Bytes of a TLS record, which the server's counts leave out."""
PACKET_BYTES = 52
"""Bytes of IPv4 and TCP with timestamps. They follow from the definition and were not measured."""

# "Size of the journal".
ROW_BYTES, PAGE_RATIO = 40.5, 1.108
"""Bytes of a journal row around its frame, and the ratio of pages to their contents."""
SNAPSHOT_VECTORS = 5
"""float32 numbers for each parameter: the first model, and theta and its average twice."""

# "A server that is mostly idle": 100, 1,000 and 2,000 devices. What TLS adds: "Gateways", memory.
SERVER_BYTES = 252e6
TORCH_BYTES = 194e6
"""torch takes this in addition, if the model is a torch module. "Memory of a leader" in docs/scale.md."""
PLAIN_BYTES, TLS_SOCKET_BYTES = 31e3, 34.5e3
"""Bytes for a connected device, and what asyncio's TLS takes in addition."""
# "Gateways", memory and reach.
GATEWAY_BYTES = 251e6
GATEWAY_PLAIN_BYTES, GATEWAY_TLS_SOCKET_BYTES = 21.3e3, 37.1e3
RELAYED_DEVICE_BYTES = 10e3
"""Bytes at the server for a device that comes through a gateway."""
# "Cost of eleven million parameters": 1.2 GB, 0.2 of it before there is a model, with window 256.
PARAMETER_BYTES = 20
"""Without staleness. server/descent/staleness.py has its formula: 24 there, 16 in docs/shards.md."""
MIRROR_BYTES = 12
"""One parameter at a gateway: theta, and when it changed. It follows from the definition, not measured."""
COPY_BYTES, COPIES_BYTES, COPIES_DISK_BYTES = 4, 2**30, 2**34
"""One parameter of a device's own replica: in memory up to limits.downlink_bytes, beyond that in a file."""

# docs/shards.md, four shards against one process.
SHARD_FRACTIONS = (
    (211_690, 2.0, 1.0),
    (1_000_000, 0.5, 1.07),
    (3_000_000, 0.47, 1.75),
    (10_000_000, 0.22, 0.85),
    (100_000_000, 0.028, 0.5),
)
"""Parameters, and the part of one process's step time that the server and all model shards together take."""
SHARD_BYTES, RAY_BYTES = 115e6, 360e6
SHARDED_SERVER_PARAMETER_BYTES = 8.2
"""One parameter of a model in model shards, at the server."""

# "Rows that a journal acknowledges": groups of 256, at a load of 17.
ROWS_PER_SECOND = {"sqlite": 17_548, "postgresql": 5_154, "synchronous": 4_657}
