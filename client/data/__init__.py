"""Training data of a device: stored data and live streams, as batches.

Training takes its samples from `Batches`. open.open_batches makes them from client.data; import it from its
file, since it loads asyncio. A new source of samples is a function in the table of sources/opening.py.
shared/data/datasets.py reads stored formats, since both ends must agree on them. A broker's library is
imported when its stream is opened. Imports backends' types.
"""

from edgeflock.client.data.batcher import (
    Batches,
    EvaluatedBatches,
    NoUsableSamples,
    PolicyBatches,
    SampledBatches,
    Shuffled,
    StreamEnded,
)
