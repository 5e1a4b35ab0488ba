"""Where streams come from: each source a file, by its scheme in the table of opening.py.

`open_source` makes of a URI an async generator of chunks that passed the checks every source's samples pass.
A source only brings what it has; what buffers and batches it lies beside this room, and knows no source.
Imports asyncio, and what a broker needs once it is asked for. Messages, lines and tables are taken apart in
the files beside this room, which do no I/O.
"""

from edgeflock.client.data.sources.opening import open_source, waits

__all__ = ["open_source", "waits"]
