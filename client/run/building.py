"""Opens a device's data, builds a trainer on them from a Welcome, and loads the first model.

The data are those of its settings or its program, with samples that others share.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgeflock.client.backends import Backend
from edgeflock.client.data import Batches, PolicyBatches
from edgeflock.client.data.batcher import Shards, require_first_shard
from edgeflock.client.data.checks import SampleSchema
from edgeflock.client.data.open import directory, open_batches, own_seed
from edgeflock.client.neighbour import Resting
from edgeflock.client.run.choosing import ClientObjects, choose, facts_of, onnx_backend, torch_backend
from edgeflock.client.run.personal_file import PersonalFile
from edgeflock.client.training import Trainer
from edgeflock.client.training.interfaces import Compute, as_server_fault
from edgeflock.client.training.personal import PersonalBackend
from edgeflock.client.transport import Link
from edgeflock.client.transport.cached_file import BASE, CachedFile, fetch
from edgeflock.client.transport.first_model import cached_first_model, load_first_model
from edgeflock.shared.errors import ConfigError, Malformed
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Weights
from edgeflock.shared.numbers import size as size_text
from edgeflock.shared.protocol.messages import Model, Welcome
from edgeflock.shared.protocol.shown import printable

if TYPE_CHECKING:  # its pydantic is a quarter of the client's import time
    from edgeflock.client.data.injection import Injection
    from edgeflock.client.flower.app import FlowerApp
    from edgeflock.shared.settings.client import ClientSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeviceData:
    batches: Batches
    choose: Callable[[int], None]
    """Selects the data shard of the next batches."""
    schema: SampleSchema
    """The server's description of samples."""
    injected: "Injection | None"
    """The batches again, if samples are shared with other devices."""

    def log_summary(self) -> None:
        """Log at the end how many samples were shared."""
        if self.injected is not None:
            log.info("samples: %d shared, %d received", self.injected.shared, self.injected.received)


@asynccontextmanager
async def open_data(
    settings: "ClientSettings",
    objects: ClientObjects,
    named: Mapping[str, str],
    app: "FlowerApp | None",
    link: Link,
) -> AsyncIterator[DeviceData]:
    """Open the data. Raises ConfigError if they do not exist.

    `named` are the data shards of the settings. An `app` has its own data. Samples are shared over `link`.
    """
    schema = SampleSchema()
    held: list[Batches]
    async with AsyncExitStack() as stack:
        if app is not None:
            held = [app]
        elif objects.batches is not None:
            held = [objects.batches(own_seed(settings))]
        else:
            each = [settings.model_copy(update={"data": data}) for data in named.values()] or [settings]
            held = [
                await stack.enter_async_context(open_batches(one, schema, objects.samples)) for one in each
            ]
        batches, choose = held[0], require_first_shard
        if named:
            batches = shards = Shards(held)
            choose = shards.choose
        injected = _injected(settings, batches, link) if settings.share else None
        yield DeviceData(injected or batches, choose, schema, injected)


def _injected(settings: "ClientSettings", batches: Batches, link: Link) -> "Injection":
    """Wrap `batches` to share samples with other devices over `link`."""
    from edgeflock.client.data.injection import Injection

    random = np.random.default_rng(np.random.SeedSequence(own_seed(settings), spawn_key=(1,)))
    injected = Injection(batches, link.share, random, settings.batch_max)
    link.listen(injected.receive)
    return injected


@contextmanager
def advise_on_default(settings: "ClientSettings", objects: ClientObjects) -> Iterator[None]:
    """Add advice to a ConfigError if the data that do not fit are the default."""
    try:
        yield
    except ConfigError as error:
        of_settings = "data" in settings.model_fields_set or settings.shards or settings.flower_app
        if of_settings or objects.batches or objects.samples:
            raise
        raise ConfigError(
            "client.data is not set, and its default, digits:, does not fit this run: name this device's "
            f"data, e.g. --data csv:PATH?label=COLUMN or --data npz:PATH ({error})"
        ) from error


@dataclass(frozen=True, slots=True)
class Building:
    """Builds the trainers of one device's runs."""

    settings: "ClientSettings"
    objects: ClientObjects
    app: "FlowerApp | None"
    data: DeviceData
    link: Link
    compute: Compute
    resting: Resting
    memory: int
    """Memory limit in bytes."""
    personal: PersonalFile
    """Keeps the device's personal layers, in a run that has such."""

    async def trainer(self, welcome: Welcome) -> Trainer:
        """Build a trainer. Raises ConfigError if this device cannot train the Welcome's model."""
        self.data.schema.take(welcome)  # samples arrive while the backend is built
        kind = choose(self.settings, welcome.model, self.objects, welcome.loss)
        await self.link.introduce(facts_of(kind, self.settings.labels))
        base = await self._base(welcome)
        if self.app is not None:
            if welcome.personal is not None or base is not None:
                raise ConfigError(
                    "the server's model.personal or model.lora is not for Flower apps, which keep layers "
                    "of their own in Context.state: leave it out on the server"
                )
            self.app.join(welcome)
            backend: Backend = self.app
        elif kind == "torch":
            backend = await self.compute(torch_backend, self.settings, welcome, self.objects, base)
        else:
            graph = await self.link.downloads.graph("step")
            onnx = await self.compute(onnx_backend, self.settings, welcome, graph, self.memory, base)
            if isinstance(self.data.batches, PolicyBatches) or welcome.evaluate:
                await self.compute(onnx.learn_to_predict, await self.link.downloads.graph("evaluation"))
            backend = onnx
        if welcome.personal is not None:
            stored = self.personal.begin(welcome)
            with as_server_fault("first personal layers"):
                own = await self.compute(PersonalBackend, backend, welcome, stored, self.personal.keep)
            self.personal.keep(own.theta)
            backend = own
        if self.settings.shards and not welcome.tasks:
            raise ConfigError(
                f"client.shards = {self.settings.shards}: the run has no tasks (coordination.mode of the "
                "server); name all data in client.data instead"
            )
        with advise_on_default(self.settings, self.objects):
            await self.compute(self.data.batches.begin, welcome, backend)
        if self.data.injected is not None:
            odds = welcome.alpha * (welcome.beta > 0)
            log.info("shares %.3g of a batch with other devices in %.3g of steps", welcome.beta, odds)
        log.info("trains %s with %s", printable(welcome.model), kind)
        self.resting.begin()
        if self.app is not None:  # its result is a sum of steps, not a gradient
            welcome = replace(welcome, adafactor=0.0)
        return Trainer(backend, self.data.batches, welcome, self.resting.rest)

    async def _base(self, welcome: Welcome) -> Path | None:
        """Return the file with the frozen part of the model, if there is one: it is downloaded once."""
        if welcome.base is None:
            return None
        size = welcome.base.size
        folder = directory(self.settings)
        cache = CachedFile(folder, BASE, welcome.base.digest, size, self.settings.name)
        log.info("the base of the model, %s, is kept in %s", size_text(size), folder)
        with as_server_fault("base"):
            path = await fetch(self.link.downloads.load, cache, self.compute)
            if path is None:
                raise Malformed("it is not the one that the server announced, or the server has it no longer")
        return path

    async def first_model(self, weights: Weights, layout: Layout) -> Model | None:
        """Return the run's first model, if the server still has it."""
        cache = cached_first_model(directory(self.settings), weights, self.settings.name)
        return await load_first_model(self.link.downloads.load, cache, weights, layout, self.compute)
