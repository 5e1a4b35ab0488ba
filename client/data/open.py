"""A device's data as its settings name them: stored, or a stream that comes in meanwhile."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgeflock.client.data.batcher import Batches, Shuffled
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError

if TYPE_CHECKING:
    from edgeflock.client.data.stream_buffer import Buffer
    from edgeflock.shared.settings.config import ClientSettings

log = logging.getLogger(__name__)


@asynccontextmanager
async def batches_of(settings: "ClientSettings") -> AsyncIterator[Batches]:
    """What to train on. Raises ConfigError if there is nothing of the kind."""
    seed = own_seed(settings)
    if settings.data.partition(":")[0] in datasets.READERS:
        yield Shuffled(datasets.load(settings.data, "train"), np.random.default_rng(seed))
        return
    if settings.batch_min > settings.batch_max:
        raise ConfigError(
            f"client.batch_min = {settings.batch_min} is above client.batch_max = {settings.batch_max}"
        )
    # Stored data need nothing of this.
    from edgeflock.client.data.backlog import Backlog
    from edgeflock.client.data.records import Skipped
    from edgeflock.client.data.sources import open_source, waits
    from edgeflock.client.data.stream_batches import StreamBatches

    tally = Skipped()
    source = open_source(settings.data, tally, seed)
    if waits(settings.data) and not settings.buffer:
        async with Backlog(source, tally, settings.batch_min) as backlog:
            yield backlog
        return
    stream = StreamBatches(source, _buffer(settings), tally, settings.batch_min, settings.batch_max)
    async with stream:
        try:
            yield stream
        finally:
            log.info("the stream at the end: %s", stream.facts())


def own_seed(settings: "ClientSettings") -> list[int]:
    """Each device draws its own."""
    return [settings.seed, *settings.name.encode()]


def _buffer(settings: "ClientSettings") -> "Buffer":
    if settings.buffer:
        from edgeflock.client.data.stream_disk import Persistence  # the only one that needs SQLite

        return Persistence(Path(settings.buffer), settings.buffer_bytes)
    from edgeflock.client.data.stream_buffer import Truncation

    return Truncation(least=settings.batch_min, quota_bytes=settings.buffer_bytes)
