"""Measured costs of one server, each with its source; the table in docs/scale.md says the same.

Sections are those of docs/benchmarks.md. Seconds are processor time of a core like those there. The model is
sent lossily and updates are signs on a grid, as it comes.
"""

# "How the cost grows": the entries of an update touch cache lines of theta and of its staleness.
PUSH_SECONDS = 94e-6
"""A push, without what it touches and without its commit; from c = .001 and .1 at 211,690 parameters."""
LINE_SECONDS, FAR_LINE_SECONDS = 38e-9, 87e-9
"""A cache line of parameters that is touched: in the processor's caches, and in memory."""
LINE_PARAMETERS = 16
NEAR_PARAMETERS = 4_000_000
"""Of models up to here staleness stays in the caches. Between 211,690 and 10 million nothing was measured."""
COMMIT_SECONDS = 354e-6
"""A group's commit, shared by the updates in it; one device against sixteen."""
GROUP_SECONDS = 1 / 1350
"""Updates that come within this time make a group; one device has 1,350 receipts a second."""

# "A server that is mostly idle".
WAKE_SECONDS = 3.0e-3
"""An update that finds the server idle: waking up, with caches that others have used since."""

# "Lossy differences".
PASS_SECONDS = 56e-6 / 211_690
"""A parameter of the pass over the model that an answer takes."""
ENCODE_SECONDS, DECODE_SECONDS = 137e-6 / 297, 149e-6 / 297
"""An entry of an answer, and of an update, on the grid."""

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

# "A server that is mostly idle": 100, 1,000 and 2,000 devices. What TLS adds: "A connection that is silent".
SERVER_BYTES = 226e6
PLAIN_BYTES, TLS_SOCKET_BYTES = 31e3, 282e3
"""Of a connected device, and what asyncio's TLS takes in addition."""
# "Lossy differences": eleven million parameters, 1.2 GB, 0.2 of it before there is a model.
PARAMETER_BYTES = 91
COPY_BYTES, COPIES_BYTES, COPIES_DISK_BYTES = 4, 2**30, 2**34
"""A parameter of what a device holds of its own, in memory up to limits.downlink_bytes, and in a file beyond
up to limits.downlink_disk_bytes."""

# "Faults": crowd, 1,000 devices, the server's own start included, on a busy machine; TLS: 14.3 ms for 6.1.
RETURN_SECONDS, RETURN_TLS_SECONDS = 11.7e-3, 11.7e-3 + 8.2e-3
"""A device that comes back: connection, proof, Welcome and its first receipt."""
