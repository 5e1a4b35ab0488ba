"""Where a run's parameters lie."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from edgeflock.server.descent import Part, Place
from edgeflock.server.shards.sharded import Sharded
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install
from edgeflock.shared.settings.config import ScaleSettings


@contextmanager
def placed(scale: ScaleSettings) -> Iterator[Place]:
    """As the settings ask, for as long as the context lasts. Raises ConfigError."""
    if not scale.shards:
        yield Part
        return
    try:
        from edgeflock.server.shards.rays import ray_placement
    except ModuleNotFoundError as error:
        raise ConfigError(f"scale.shards = {scale.shards} needs Ray: {install('ray')}") from error
    with ray_placement(scale.ray) as placement:
        yield partial(Sharded, placement, scale.shards)
