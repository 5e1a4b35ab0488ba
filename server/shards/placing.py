"""Places a run's parameters: in this process, or in model shards."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from edgeflock.server.descent import Part, Place
from edgeflock.server.shards.sharded import Sharded
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command
from edgeflock.shared.settings.server import ScaleSettings


@contextmanager
def open_place(scale: ScaleSettings) -> Iterator[Place]:
    """The place that the settings ask for, while the context lasts. Raises ConfigError."""
    if not scale.shards:
        yield Part
        return
    _prepare(scale)
    try:
        from edgeflock.server.shards.rays import ray_placement
    except ModuleNotFoundError as error:
        raise ConfigError(f"scale.shards = {scale.shards} needs Ray: {install_command('ray')}") from error
    with ray_placement(scale.ray) as placement:
        yield partial(Sharded, placement, scale.shards)


def _prepare(scale: ScaleSettings) -> None:
    """Set the environment variables that Ray reads at its first import."""
    if "ray" in sys.modules:
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns of a coming default
    # Ray's own cluster listens on every address of the machine, and executes what any token holder sends.
    if not scale.ray and os.environ.setdefault("RAY_AUTH_MODE", "token") == "token":
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
