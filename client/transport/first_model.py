"""The first model of a run as a file, which devices download if they cannot make it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from edgeflock.client.training.interfaces import Compute
from edgeflock.client.transport.cached_file import FIRST_MODEL, CachedFile, fetch
from edgeflock.shared.codecs import packed, sparse, values
from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Weights
from edgeflock.shared.protocol.messages import Model


def cached_first_model(directory: Path, weights: Weights, device: str) -> CachedFile:
    """Return the cache file of the first model. Raises ConfigError if the folder cannot be written."""
    return CachedFile(directory, FIRST_MODEL, weights.digest, weights.size, device)


async def load_first_model(
    load: Callable[[CachedFile], Awaitable[bool]],
    cache: CachedFile,
    weights: Weights,
    layout: Layout,
    compute: Compute,
) -> Model | None:
    """Return the record of version 0 that a Welcome announces as `weights`; None: pull the whole model.

    `load` downloads the missing bytes (downloads.py). Raises Malformed or WrongDtype if the data
    differ from the announcement, or the announcement is invalid.
    """
    packed.width_of(weights.mode)  # raises if the mode cannot code a whole model
    size = values.size_of(weights.mode, layout.counts(None))
    if weights.size > packed.max_size(size):
        raise Malformed(
            f"the server announces a first model of {weights.size} bytes, and this one takes at most "
            f"{packed.max_size(size)}"
        )
    path = await fetch(load, cache, compute, wanted=weights.load)
    if path is None:
        return None
    stream = await compute(lambda: packed.unpack(path.read_bytes(), weights.mode, size))
    exact = weights.mode == values.CODINGS["f32"].mode
    return Model(0, None, sparse.DENSE, weights.mode, layout.size, b"", stream, not exact)
