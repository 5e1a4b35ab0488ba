"""Replays stored data as a stream at a rate: synthetic:URI?rate=64.

    rate=64                    samples per second; or a curve (shared/data/rates.py): normal(64,24),
                               sine:12..108/60s, square:500..20/30s, steps:0:64,60:16
    seed=7                     of random draws and shuffles; by default each device has its own
    order=kept                 as stored, equal on each device except for part=; or order=shuffled
    once                       end after one pass; by default the data repeat for ever

URI is npz: or digits: with its own options, e.g. synthetic:npz:train.npz?part=1/3&rate=64.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.uri import Uri
from edgeflock.shared.data import datasets
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.data.fitting import describe, read_as, targets_of
from edgeflock.shared.data.rates import RateCurve, curve
from edgeflock.shared.data.texts import ABSENT, encode_text
from edgeflock.shared.errors import ConfigError

TICK = 0.05
"""Least seconds between two chunks."""

MAX_CHUNK = 4096
"""Maximum number of samples in a chunk. A delayed stream catches up in several chunks."""


async def replay_stored(
    uri: Uri, tally: Skipped, seed: Sequence[int] = (0,)
) -> AsyncGenerator[StreamChunk, None]:
    """Yield samples by the event loop's clock, which may be virtual. `seed` applies if the URI has none."""
    own, rest = uri.split("rate", "seed", "order", "once")
    bare = Uri.parse(rest.place)
    inner = str(Uri(bare.scheme, bare.place, rest.options))
    if not datasets.is_stored(inner):
        raise uri.error(
            f"only stored data are replayed: {', '.join(f'{name}:' for name in datasets.READERS)}"
        )
    if "rate" not in own:
        raise uri.error("needs rate=, samples a second, e.g. rate=64")
    order = own.get("order", "kept")
    if order not in ("kept", "shuffled"):
        raise uri.error(f"order={order} must be kept or shuffled")
    random = np.random.default_rng(uri.integer("seed") if "seed" in own else seed)
    try:
        rate = curve(own["rate"], random)
    except ConfigError as error:
        raise uri.error(str(error)) from error
    data = _load_in_sensor_units(inner)
    passes = Passes(len(data), random if order == "shuffled" else None, once="once" in own)
    async with aclosing(replay(data, rate, passes)) as chunks:
        async for chunk in chunks:
            yield chunk


def _load_in_sensor_units(uri: str) -> Dataset:
    """Return stored data in a sensor's units. The run scales them later (sample_description.py)."""
    raw = datasets.read(uri, "train")
    if not raw.columns or not isinstance(raw.x, np.ndarray):
        return read_as(raw)[0].load()
    described = describe(replace(raw, scale=False))
    x = np.where(np.isnan(raw.x), ABSENT, raw.x).astype(np.float32)
    for column, texts in raw.texts.items():
        present = texts.codes >= 0
        codes = np.array([encode_text(name) for name in texts.names], np.float32)
        x[present, column] = codes[texts.codes[present]]
    return Dataset(x, targets_of(raw, described), description=described)


async def replay(data: Dataset, rate: RateCurve, passes: "Passes") -> AsyncGenerator[StreamChunk, None]:
    """Yield the samples of `data` in the order of `passes`, at this rate, by the event loop's clock."""
    clock = asyncio.get_running_loop().time
    begin, sent = clock(), 0
    while True:
        due = min(math.floor(rate.arrivals(clock() - begin) + 1e-9) - sent, MAX_CHUNK)
        if due > 0:
            chosen = passes.take(due)
            if not len(chosen):
                return
            yield StreamChunk(data.x[chosen], data.y[chosen])
            sent += len(chosen)
        await asyncio.sleep(_pause(rate, sent, clock() - begin))


def _pause(rate: RateCurve, sent: int, second: float) -> float:
    """Return the seconds until the next samples are due; at most an hour."""
    until = rate.arrival_time(sent + 1) - second
    return min(max(until, TICK), 3600.0) if until > 0 else 0.0


class Passes:
    """Yields the indices of samples, pass after pass."""

    def __init__(self, count: int, random: np.random.Generator | None, *, once: bool) -> None:
        self._count = count
        self._random = random
        self._passes = 1 if once else math.inf
        self._order = np.zeros(0, np.int64)

    def take(self, count: int) -> NDArray[np.int64]:
        """Return the next `count` indices; fewer at the end of the last pass, and then none."""
        while self._order.size < count and self._passes > 0:
            self._passes -= 1
            random = self._random
            following = np.arange(self._count) if random is None else random.permutation(self._count)
            self._order = np.concatenate((self._order, following))
        chosen, self._order = self._order[:count], self._order[count:]
        return chosen
