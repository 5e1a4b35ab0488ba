"""A client process: settings in, training until the run is over."""

import os
import platform
from random import Random

import numpy as np

from edgeflock.client.backend import Backend
from edgeflock.client.batcher import Shuffled
from edgeflock.client.transport import Link
from edgeflock.client.worker import Progress, Worker
from edgeflock.shared import datasets
from edgeflock.shared.config import Client
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.messages import PROTOCOL, Facts, Hello, Welcome

ZOO = "edgeflock.client.zoo:"


async def run_client(settings: Client) -> Progress:
    """Train for `settings.server` until its run is over. Raises ConfigError or SessionRefused."""
    batches = Shuffled(
        datasets.load(settings.data, "train"),
        np.random.default_rng([settings.seed, *settings.name.encode()]),
    )
    hello = Hello(PROTOCOL, settings.name, b"", _facts(settings))
    async with Link(settings.server, settings.token, hello, Random()) as link:
        return await Worker(link, lambda welcome: _backend(settings, welcome), batches).run()


def _backend(settings: Client, welcome: Welcome) -> Backend:
    """The training engine for the run's model, which the device's owner must have allowed."""
    model = settings.model or welcome.model
    if not settings.model and not model.startswith(ZOO):
        raise ConfigError(
            f"the server asks to train {model}; a server may only name models of {ZOO}... by itself. "
            f"If you trust it, set client.model={model}"
        )
    try:
        from edgeflock.client.torch_backend import TorchBackend
    except ImportError as error:
        raise ConfigError("client.backend = 'torch' needs torch: pip install 'edgeflock[torch]'") from error
    return TorchBackend(model, welcome.loss, seed=settings.seed, threads=settings.threads)


def _facts(settings: Client) -> Facts:
    return {"backend": settings.backend, "machine": platform.machine(), "cores": os.cpu_count() or 1}
