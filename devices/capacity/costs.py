"""Measured costs of a run's parts, each with its source; the table in docs/scale.md says the same.

Sections are those of docs/benchmarks.md. Seconds are processor time of a core like those there. The model is
sent lossily and updates are signs on a grid, as it comes.
"""

# "How the cost grows": the entries of an update touch cache lines of theta and of its staleness.
PUSH_SECONDS = 94e-6
"""A push, without what it touches and without its commit; from c = .001 and .1 at 211,690 parameters."""
LINE_SECONDS, FAR_LINE_SECONDS = 38e-9, 87e-9
"""A cache line of parameters that is touched: in the processor's caches, and in memory."""
LINE_PARAMETERS = 16
NEAR_BYTES = 270e6
"""Of staleness, up to here near. Between 14 MB and 670, 10 million parameters, nothing was measured."""
COMMIT_SECONDS = 354e-6
"""A group's commit, shared by the updates in it; one device against sixteen."""
# "Gateways", connected devices: eight runs with 100 and 1,000 devices, to which these four were fitted.
GROUP_SECONDS = 6.5e-3
"""Updates that come within this time make a group: so long a commit took there, with disk and other work."""
WAKE_SECONDS = 1.55e-3
"""A group that finds the server idle: waking up, with caches that others have used since."""
THROUGH_WAKE_SECONDS = 1.2e-3
"""The same of updates that come through a gateway, at the server as at the gateway."""
FOLLOW_WAKE_SECONDS = 0.4e-3
"""At another gateway, which is told of them."""

# "Lossy differences".
PASS_SECONDS = 56e-6 / 211_690
"""A parameter of the pass over the model that an answer takes."""
ENCODE_SECONDS, DECODE_SECONDS = 116e-6 / 297, 122e-6 / 297
"""An entry of an answer, and of an update, on the grid."""

# "What devices are sent": the record with 4, 16 and 200 devices, exact answers.
EXACT_BYTES, EXACT_GROWTH = 8.2, 0.6
"""Of an answer, over the entries of an update; and with what power of the devices it grows: they change the
same parameters."""
EXACT_SECONDS = 0.7e-3 / 20_000 / 4.7
"""Of a byte of it; 20,000 indices take 0.7 ms."""
WHOLE_BYTES = 1.0
"""A parameter of a whole model, which a device needs that holds nothing; exact: four times as much."""

# "Gateways", cost, of 2026-11-23 at a load of 5: one device's answers apart from the other's.
THROUGH_SECONDS = 72e-6
"""A push at the server that comes through a gateway, without decoding, what it touches and its commit."""
GATEWAY_SECONDS = 80e-6
"""A push at its gateway, without an answer."""
TLS_SECONDS = 100e-6
"""An update and its answer over TLS; fitted to 1,000 devices with and without, and to 10,000."""
FOLLOW_SECONDS, FOLLOW_ENTRY_SECONDS = 12e-6, 6e-9
"""At each gateway, a version that comes to be followed, and an entry of it."""
TELL_SECONDS = 2e-6
"""At the server, a version that one gateway is told of."""
LINE_UP_BYTES, LINE_RECEIPT_BYTES, LINE_DOWN_BYTES, LINE_ENTRY_BYTES = 16, 10, 25, 8
"""On gateways' lines: around an update, its receipt, around what each gateway is told that it changed; and an
entry of that."""

# "As it comes", digits, four devices: bytes over entries.
ENTRY_UP_BYTES, ENTRY_DOWN_BYTES = 0.86, 0.97
# "Fewer bytes still".
AROUND_UP_BYTES, AROUND_DOWN_BYTES = 25.8, 20.6
"""What is around the entries, WebSocket's headers included."""
HEADER_UP_BYTES = 8
"""Of these, WebSocket's: what the journal does not keep."""
# "What it costs to prove who one is".
TLS_BYTES = 22
"""Of a TLS record, which the server's counts leave out."""
PACKET_BYTES = 52
"""Of IPv4 and TCP with timestamps. By their definition, not measured."""

# "A journal's growth".
ROW_BYTES, PAGES = 40.5, 1.108
"""A row of the journal around its frame, and pages over what is in them."""
SNAPSHOT_VECTORS = 5
"""The first model, and theta and its average twice: float32 numbers a parameter."""

# "A server that is mostly idle": 100, 1,000 and 2,000 devices. What TLS adds: "Gateways", memory.
SERVER_BYTES = 252e6
TORCH_BYTES = 194e6
"""Beside that: torch, where the model is a module of it. "Memory of a leader" in docs/scale.md."""
PLAIN_BYTES, TLS_SOCKET_BYTES = 31e3, 34.5e3
"""Of a connected device, and what asyncio's TLS takes in addition."""
# "Gateways", memory and reach.
GATEWAY_BYTES = 251e6
GATEWAY_PLAIN_BYTES, GATEWAY_TLS_SOCKET_BYTES = 21.3e3, 37.1e3
BEHIND_BYTES = 10e3
"""At the server, of a device that comes through a gateway."""
# "Lossy differences": eleven million parameters, 1.2 GB, 0.2 of it before there is a model, with window 256.
PARAMETER_BYTES = 20
"""Without staleness, for which server/descent/staleness.py has a formula: 24 there, 16 in docs/shards.md."""
MIRROR_BYTES = 12
"""A parameter at a gateway: theta and what was changed when. By definition, not measured."""
COPY_BYTES, COPIES_BYTES, COPIES_DISK_BYTES = 4, 2**30, 2**34
"""A parameter of what a device holds of its own, in memory up to limits.downlink_bytes, and in a file beyond
up to limits.downlink_disk_bytes."""

# docs/shards.md, four shards against one process.
SHARED_OUT = (
    (211_690, 2.0, 1.0),
    (1_000_000, 0.5, 1.07),
    (3_000_000, 0.47, 1.75),
    (10_000_000, 0.22, 0.85),
    (100_000_000, 0.028, 0.5),
)
"""Parameters; of one process's time for a step, that of the server of shards, and of all shards together."""
SHARD_BYTES, RAY_BYTES = 115e6, 360e6
SHARDED_SERVER_PARAMETER_BYTES = 8.2
"""A parameter of a model in shards, at the server."""

# "What a journal acknowledges": groups of 256, beside a load of 17.
ROWS_PER_SECOND = {"sqlite": 17_548, "postgresql": 5_154, "synchronous": 4_657}

# "Gateways", reach: connection and Welcome. The proof: "What it costs to prove who one is".
JOIN_SECONDS, JOIN_TLS_SECONDS = 1.6e-3, 1.9e-3
"""Of a device at a server;"""
JOIN_THROUGH_SECONDS = 0.8e-3
JOIN_GATEWAY_SECONDS, JOIN_GATEWAY_TLS_SECONDS = 0.5e-3, 1.05e-3
"""of one that comes through a gateway, at the server and at the gateway."""
PROOF_SECONDS = 0.26e-3
