"""What a device trains on: stored data and live streams, as batches.

`Batches` is what training takes; open.batches_of makes them of what client.data names, and is imported from
its file, since it brings asyncio. A new source of samples is a function in sources.py's table; stored formats
are read in shared/data/datasets.py, since both ends must agree on them. Brokers' libraries are imported when
a stream of theirs is opened. Imports backends' types.
"""

from edgeflock.client.data.batcher import Acting, Batches, NothingFit, Shuffled, StreamOver

__all__ = ["Acting", "Batches", "NothingFit", "Shuffled", "StreamOver"]
