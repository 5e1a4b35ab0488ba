"""Opens a device's data: those of its settings or its program, and samples that others share."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgeflock.client.data import Batches
from edgeflock.client.data.batcher import Shards, require_first_shard
from edgeflock.client.data.checks import SampleSchema
from edgeflock.client.data.open import open_batches, own_seed
from edgeflock.client.run.program_objects import ClientObjects
from edgeflock.client.transport import Link
from edgeflock.shared.errors import ConfigError

if TYPE_CHECKING:  # its pydantic is a quarter of the client's import time
    from edgeflock.client.data.injection import Injection
    from edgeflock.client.flower.app import FlowerApp
    from edgeflock.shared.settings.client import ClientSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeviceData:
    """The data of one device."""

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
