"""A client in this program."""

import os
import secrets
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from edgeflock.api.data import Data, dataset
from edgeflock.api.model import Model, model_of
from edgeflock.client.data import Batches, Shuffled
from edgeflock.client.machine import default_name
from edgeflock.client.run import ClientObjects, run_client
from edgeflock.client.training import WorkerProgress
from edgeflock.client.transport.credentials import join
from edgeflock.shared.data.account import SampleAccount
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings import config
from edgeflock.shared.settings.client import ClientSettings

if TYPE_CHECKING:
    from torch import nn


class Client:
    """A device that trains on local data for a server until the run is over."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        data: Data
        | str
        | Batches
        | Generator[Any, None, None]
        | AsyncGenerator[Any, None]
        | Callable[[], Any],
        backend: str = "auto",
        model: "Model | str | Callable[[], nn.Module] | nn.Module | None" = None,
        name: str = "",
        **settings: object,
    ) -> None:
        """`data` is (x, y), a part from `deal`, a data URI like client.data, your own Batches, or a stream.

        A stream is a sync or async generator of samples (x, y), or a function that makes one.

        `token` lets the device join under `name`, or under a new name for each `run`. Without a token, it
        uses the identity of an earlier join (client.identity); an open run needs none. `model` is for
        backend="torch" if the run's model is not in edgeflock.client.zoo; onnx needs none. Other settings are
        those of [client] by name, except `low_priority`. Raises ConfigError.
        """
        self._token = token
        self._model = None if model is None else model_of(model)
        self._batches: Callable[[list[int]], Batches] | None = None
        self._samples: Callable[[], Any] | None = None
        given = {**settings, "server": url, "backend": backend}
        if isinstance(data, str | os.PathLike):
            given["data"] = os.fspath(data)
        elif isinstance(data, Dataset | tuple | list):
            stored = dataset(data, "edgeflock.Client(data=...)")
            self._batches = lambda seed: Shuffled(stored, np.random.default_rng(seed))
        elif hasattr(data, "take"):
            own: Any = data
            self._batches = lambda seed: own
        elif isinstance(data, Generator | AsyncGenerator) or callable(data):
            stream: Any = data
            self._samples = stream if callable(stream) else lambda: stream
            given["data"] = f"python:{getattr(data, '__qualname__', type(data).__name__)}"
        else:
            raise ConfigError(
                f"edgeflock.Client(data=...) is a {type(data).__name__}; give (x, y), a part of "
                "edgeflock.deal, a data URI, Batches, or a generator"
            )
        if (self._batches or self._samples) and "shards" in settings:
            raise ConfigError("edgeflock.Client(shards=...) names its data itself; leave data out: data=''")
        if self._model is not None:
            given["model"] = self._model.name
        if name or token:
            given["name"] = name or f"{default_name()}-{secrets.token_hex(3)}"
        parsed = config.from_sections({"client": given}, "edgeflock.Client").client
        if "low_priority" in settings and parsed.low_priority:
            raise ConfigError(
                "edgeflock.Client(low_priority=True): a Client leaves its program's priority as it is; leave "
                "low_priority out, and call os.nice(19) in the program"
            )
        self._initialise(parsed, threads="threads" in settings)

    @classmethod
    def configured(cls, settings: ClientSettings) -> Self:
        """Return a client with the settings of a file, for a process of its own."""
        client = cls.__new__(cls)
        client._token, client._model, client._batches, client._samples = "", None, None, None
        client._initialise(settings, threads=True)
        client._low_priority = settings.low_priority
        return client

    def _initialise(self, settings: ClientSettings, *, threads: bool) -> None:
        self._settings = settings
        self._threads = threads
        self._low_priority = False
        self.account: SampleAccount | None = None
        """The account of a stream's samples, once `run` has ended."""

    async def run(self) -> WorkerProgress:
        """Train until the run is over. Cancel the coroutine to stop earlier; it then releases everything.

        Raises ConfigError, Refused, Diverged, or TrainingFailed.
        """
        settings = self._settings
        identity = None
        if self._token:
            identity = await join(settings.server, self._token, settings.name, insecure=settings.insecure)
        make = None if self._model is None else self._model.make
        given = ClientObjects(identity, self._batches, self._samples, make, self._threads, self._low_priority)
        return await run_client(settings, self._count, given)

    def _count(self, account: SampleAccount) -> None:
        self.account = account
