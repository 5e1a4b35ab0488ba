"""Builds a trainer on the device's data from a Welcome, and loads the first model."""

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgeflock.client.backends import Backend
from edgeflock.client.data import PolicyBatches
from edgeflock.client.data.open import directory
from edgeflock.client.neighbour import Resting
from edgeflock.client.run.choosing import choose, facts_of, onnx_backend, torch_backend
from edgeflock.client.run.holding import DeviceData, advise_on_default
from edgeflock.client.run.personal_file import PersonalFile
from edgeflock.client.run.program_objects import ClientObjects
from edgeflock.client.training import Trainer
from edgeflock.client.training.interfaces import Compute
from edgeflock.client.training.personal import PersonalBackend
from edgeflock.client.transport import Link
from edgeflock.client.transport.first_model import CachedFirstModel, load_first_model
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.weights import Weights
from edgeflock.shared.protocol.messages import Model, Welcome
from edgeflock.shared.protocol.shown import printable

if TYPE_CHECKING:  # its pydantic is a quarter of the client's import time
    from edgeflock.client.flower.app import FlowerApp
    from edgeflock.shared.settings.client import ClientSettings

log = logging.getLogger(__name__)


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
        if self.app is not None:
            if welcome.personal is not None:
                raise ConfigError(
                    "the server's model.personal is not for Flower apps, which keep layers of their own "
                    "in Context.state: leave it out on the server"
                )
            self.app.join(welcome)
            backend: Backend = self.app
        elif kind == "torch":
            backend = await self.compute(torch_backend, self.settings, welcome, self.objects)
        else:
            graph = await self.link.graph("step")
            onnx = await self.compute(onnx_backend, self.settings, welcome, graph, self.memory)
            if isinstance(self.data.batches, PolicyBatches) or welcome.evaluate:
                await self.compute(onnx.learn_to_predict, await self.link.graph("evaluation"))
            backend = onnx
        if welcome.personal is not None:
            stored = self.personal.begin(welcome)
            backend = PersonalBackend(backend, welcome, stored, self.personal.keep)
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

    async def first_model(self, weights: Weights, layout: Layout) -> Model | None:
        """Return the run's first model, if the server still has it."""
        cache = CachedFirstModel(directory(self.settings), weights, self.settings.name)
        return await load_first_model(self.link.load, cache, weights, layout, self.compute)
