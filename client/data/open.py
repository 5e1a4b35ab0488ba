"""Opens the data that a device's settings name: stored data or a stream."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from edgeflock.client.data.batcher import Batches, RawBatches
from edgeflock.client.data.checks import SampleSchema
from edgeflock.shared.data import datasets
from edgeflock.shared.data.own import is_own
from edgeflock.shared.environments import is_environment, open_environment
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.files import cache_folder
from edgeflock.shared.protocol.messages import LONGEST_SHARDS

if TYPE_CHECKING:
    from edgeflock.client.data.stream_buffer import Buffer
    from edgeflock.shared.settings.client import ClientSettings

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""Valid names of data shards."""


@asynccontextmanager
async def open_batches(
    settings: "ClientSettings", schema: SampleSchema | None = None, function: Callable[..., Any] | None = None
) -> AsyncIterator[Batches]:
    """Open the device's batches. Raises ConfigError if the settings do not name valid data.

    `schema` is the server's description of samples. `function` is a generator function that replaces
    client.data.
    """
    seed = own_seed(settings)
    if is_environment(settings.data):
        from edgeflock.client.data.acting import Actor  # imports gymnasium

        with closing(Actor(open_environment(settings.data), np.random.default_rng(seed))) as actor:
            yield actor
        return
    if is_stored(settings.data):
        raw, random = datasets.read(settings.data, "train"), np.random.default_rng(seed)
        yield RawBatches(raw, random, hold_out=settings.hold_out)
        return
    if settings.batch_min > settings.batch_max:
        raise ConfigError(
            f"client.batch_min = {settings.batch_min} is above client.batch_max = {settings.batch_max}"
        )
    # Stored data need none of these.
    from edgeflock.client.data.backlog import Backlog
    from edgeflock.client.data.checks import Checks
    from edgeflock.client.data.records import QuarantineFile, Skipped
    from edgeflock.client.data.sources import is_backlog, open_source
    from edgeflock.client.data.stream_batches import StreamBatches

    tally = Skipped(QuarantineFile(_quarantine_path(settings)))
    schema = schema or SampleSchema()
    source = open_source(settings.data, tally, seed, settings.range, schema, function)
    checks = Checks(limit=settings.range, schema=schema)
    if is_backlog(settings.data) and not settings.buffer:
        async with Backlog(source, tally, settings.batch_min, checks) as backlog:
            yield backlog
        return
    low, high = settings.batch_min, settings.batch_max
    stream = StreamBatches(source, _open_buffer(settings), tally, low, high, checks=checks)
    async with stream:
        yield stream


def is_stored(data: str) -> bool:
    """Return whether the URI names stored data rather than a stream."""
    if datasets.is_stored(data) or not is_own(data):
        return datasets.is_stored(data)
    # dir:captures might be a function's name as well.
    from edgeflock.client.data.sources.opening import SOURCES

    return data.partition(":")[0] not in SOURCES


def parse_shards(settings: "ClientSettings") -> dict[str, str]:
    """Return name -> data of each data shard. Raises ConfigError."""
    shards: dict[str, str] = {}
    for entry in settings.shards:
        name, equals, data = entry.partition("=")
        if not (equals and data and _NAME.fullmatch(name)) or name in shards:
            raise ConfigError(
                f"client.shards: {entry!r} must be NAME=DATA, e.g. north=npz:north.npz, with a name of its "
                "own of letters, digits, '.', '_' and '-'"
            )
        if not is_stored(data):
            raise ConfigError(f"client.shards: {entry!r}: a shard is stored data, not a stream")
        shards[name] = data
    if len(",".join(shards)) > LONGEST_SHARDS:
        raise ConfigError(
            f"client.shards: the names of {len(shards)} shards take more than {LONGEST_SHARDS} characters; "
            "choose shorter ones"
        )
    return shards


def directory(settings: "ClientSettings") -> Path:
    """Return the cache directory, for files that outlast the process and can be recreated."""
    if settings.directory:
        return Path(settings.directory)
    return cache_folder()


def _quarantine_path(settings: "ClientSettings") -> Path:
    return directory(settings) / f"quarantine-{quote(settings.name, safe='')}.jsonl"


def own_seed(settings: "ClientSettings") -> list[int]:
    """Return a seed that differs from device to device."""
    return [settings.seed, *settings.name.encode()]


def _open_buffer(settings: "ClientSettings") -> "Buffer":
    if settings.buffer:
        from edgeflock.client.data.stream_disk import Persistence  # the only one that needs SQLite

        return Persistence(Path(settings.buffer), settings.buffer_bytes)
    from edgeflock.client.data.stream_buffer import Truncation

    return Truncation(minimum=settings.batch_min, quota_bytes=settings.buffer_bytes)
