"""A recorded stream for several devices at once, and how well its samples are predicted before they are sent.

The recording is cut into turns. Of each turn every device gets a block of its own, whole and in time order,
so that neighbours in a device's stream are neighbours in the recording, but for where a block begins. All
of a turn is scored before any of it is published (prequential evaluation: A. P. Dawid, "Statistical theory:
the prequential approach", 1984): no model has seen what it is scored on, nor anything later.
"""

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import aiomqtt
import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.data.recent import LaggedFeatures
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.torch_module import FlatModule

TICK = 0.05
"""Samples of so many seconds are published together."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A stream that was recorded, and how devices read it."""

    name: str
    parts: tuple[tuple[str, str], ...]
    """The arrays of its file, (x, y), in time order."""
    units: tuple[float, ...]
    """In which records count their features, so that all are about 1."""
    block: int
    """Samples in a row for a device of share 1."""
    window: int
    lags: int
    """Features of the recent past (shared/data/recent.py)."""

    def read(self, path: Path) -> Dataset:
        """All samples in time order. Raises ConfigError if they are not there."""
        try:
            with np.load(path) as archive:
                x, y = (np.concatenate([archive[pair[column]] for pair in self.parts]) for column in range(2))
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"--data {path}: {error}; it must be {self.name}.npz") from error
        return Dataset((x / np.array(self.units)).astype(np.float32), y.astype(np.int64))


@dataclass(frozen=True, slots=True)
class Block:
    """What one device gets in one turn."""

    records: Dataset
    """As published."""
    features: Dataset
    """As the device trains on them."""
    unchanged: NDArray[np.bool_]
    """Whether a label is that of the device's sample before."""


def turns(recording: Recording, data: Dataset, shares: Sequence[int]) -> Iterator[list[Block]]:
    """A block for each device, turn after turn; what is left at the end is less than a turn and left out."""
    recents = [LaggedFeatures(recording.window, recording.lags, classes=2) for _ in shares]
    last = np.full(len(shares), -1)
    ends = np.cumsum(shares) * recording.block
    for start in range(0, len(data) - ends[-1] + 1, ends[-1]):
        blocks = []
        for device, (share, end) in enumerate(zip(shares, ends, strict=True)):
            rows = slice(start + end - share * recording.block, start + end)
            records = Dataset(data.x[rows], data.y[rows])
            before = np.concatenate((last[device : device + 1], records.y[:-1]))
            last[device] = records.y[-1]
            blocks.append(Block(records, recents[device].extend(records), before == records.y))
        yield blocks


@dataclass(frozen=True, slots=True)
class Score:
    """How many of a block's samples were predicted."""

    samples: int
    right: int
    unchanged: int
    """By repeating the label before."""


class Judge:
    """Scores blocks with the model that the server has to offer."""

    def __init__(self, http: aiohttp.ClientSession, url: str, module: str) -> None:
        self._http = http
        self._url = f"{url}/v1/model"
        self._flat = FlatModule(module, "cross_entropy")
        self._tag = ""
        self._theta = self._flat.theta()
        self.version = 0

    async def refresh(self) -> None:
        """Take the newest model, if it is another."""
        async with self._http.get(self._url, headers={"If-None-Match": self._tag}) as response:
            response.raise_for_status()
            if response.status == 200:
                self._theta = np.frombuffer(await response.read(), "<f4")
                self._tag = response.headers["ETag"]
                self.version = int(response.headers["X-Edgeflock-Version"])

    def score(self, block: Block) -> Score:
        _, accuracy = self._flat.evaluate(self._theta, block.features.x, block.features.y)
        assert accuracy is not None
        samples = len(block.features)
        return Score(samples, round(accuracy * samples), int(block.unchanged.sum()))


async def publish(
    client: aiomqtt.Client, topics: Sequence[str], blocks: Sequence[Block], until: float, seconds: float
) -> None:
    """The blocks' records, each block evenly over the `seconds` up to `until` on the event loop's clock."""
    clock = asyncio.get_running_loop().time
    sent = [0] * len(blocks)
    while any(count < len(block.records) for count, block in zip(sent, blocks, strict=True)):
        await asyncio.sleep(TICK)
        elapsed = min(1 - (until - clock()) / seconds, 1.0)
        for device, (topic, block) in enumerate(zip(topics, blocks, strict=True)):
            due = math.floor(elapsed * len(block.records))
            for x, y in zip(
                block.records.x[sent[device] : due], block.records.y[sent[device] : due], strict=True
            ):
                await client.publish(topic, msgpack.packb({"x": x.tobytes(), "y": int(y)}))
            sent[device] = max(due, sent[device])
