"""The ways to publish, by the name that `downlink.mode` gives them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.publication.copies import Copies
from edgeflock.server.publication.exact import Exact
from edgeflock.server.publication.lossy import Lossy
from edgeflock.server.publication.publication import Publication
from edgeflock.server.publication.spill import Spill
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.settings.config import Config

_ENCODED = 1 << 18
"""Parameters a version. Whatever devices begin with takes some 12 ns a parameter to encode while the engine
waits, and it is made anew no more often than this allows: 3 ms a version, whoever asks how often."""

_LAG = 100
"""Versions that a device's copy may lag behind the model on average, beyond its staleness."""

First = NDArray[np.float32] | None
"""The model of version 0 (float32 [P + B]) if every device can make it, else None."""


def _exact(config: Config, layout: Layout, version: int, first: First, directory: Path | None) -> Publication:
    return Exact(layout, version, config.model.pull)


def _lossy(config: Config, layout: Layout, version: int, first: First, directory: Path | None) -> Publication:
    size, limits = layout.parameters.size, config.limits
    spill = Spill(directory, size, limits.downlink_disk_bytes)
    known = None if first is None else first[:size]
    copies = Copies(layout.parameters, known, limits.downlink_bytes // (4 * size), spill)
    lag = 0 if config.coordination.mode == "rounds" else _LAG  # devices of a round begin at one version
    return Lossy(layout, version, copies, config.downlink, _patience(config, size), lag)


def _patience(config: Config, size: int) -> int:
    """How many versions old a model of `size` parameters may be that a device begins with.

    Its first update must be admitted.
    """
    window = 1 if config.coordination.mode == "rounds" else config.coordination.window
    return min(size // _ENCODED, window // 2)


MODES: dict[str, Callable[[Config, Layout, int, First, Path | None], Publication]] = {
    "exact": _exact,
    "lossy": _lossy,
}


def publication_of(
    config: Config, layout: Layout, version: int, first: First, directory: Path | None = None
) -> Publication:
    """What `config` asks for, from `version` on. What memory has no room for lies in `directory`."""
    return MODES[config.downlink.mode](config, layout, version, first, directory)
