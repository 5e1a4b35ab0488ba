"""Sources of streams: one file each, found by its scheme in the table of opening.py.

`open_source` makes an async generator of checked chunks from a URI. A source only yields samples. Buffers and
batches are in client/data and do not depend on sources. Imports asyncio, and a broker's library when its
source is opened. client/data parses messages, lines and tables, without I/O.
"""

from edgeflock.client.data.sources.opening import is_backlog, open_source
