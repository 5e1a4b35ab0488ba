"""client.data = "waves:?size=8": sines of two frequencies, to be told apart."""

from collections.abc import AsyncGenerator

import numpy as np

from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.uri import Uri


async def waves(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    """A hundred of them, of `size` points each."""
    points = np.arange(int(uri.options.get("size", "8")))
    classes = np.arange(100) % 2
    yield StreamChunk(np.sin(np.outer(classes + 1, points)).astype(np.float32), classes)
