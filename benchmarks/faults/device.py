"""Device processes that push ready-made updates and note every receipt, whatever becomes of them.

    python -m benchmarks.faults.device URL FOLDER SEED PAUSE NAME ...

Each device adds a line to FOLDER/NAME for each receipt: sequence, version, seconds of the monotonic clock.
"""

import asyncio
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from benchmarks.updates import LAYOUT, random_update
from edgeflock.client.transport import Link
from edgeflock.shared.errors import BaseExpired, BaseInFuture
from edgeflock.shared.protocol.messages import PROTOCOL, Hello


@dataclass(frozen=True, slots=True)
class Noted:
    """A receipt, as its device noted it."""

    name: str
    sequence: int
    version: int
    at: float
    """By the monotonic clock, which all processes share."""


class Notes:
    """The receipts that devices note in `folder`. What was read once is not read again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, int] = {}
        self._found: list[Noted] = []

    def all(self) -> list[Noted]:
        """Of all devices so far, by time. A line that a killed device did not end does not count."""
        for path in self._folder.iterdir():
            with path.open() as file:
                file.seek(self._read.get(path.name, 0))
                new, _, _ = file.read().rpartition("\n")
            for line in new.splitlines():
                sequence, version, at = line.split()
                self._found.append(Noted(path.name, int(sequence), int(version), float(at)))
            if new:
                self._read[path.name] = self._read.get(path.name, 0) + len(new) + 1
        self._found.sort(key=lambda one: one.at)
        return self._found


async def device(url: str, folder: Path, name: str, seed: int, pause: float) -> None:
    """Push for ever, `pause` seconds after each receipt."""
    random = Random(f"{name} {seed}")
    update = random_update(LAYOUT, 0.01, "codebook4", np.random.default_rng(seed))
    with (folder / name).open("a") as notes:
        hello = Hello(PROTOCOL, name, LAYOUT.digest, {})
        async with Link(url, None, hello, random, insecure=True) as link:  # of its own network namespace
            welcome = await link.join()
            version, sequence = welcome.version, welcome.sequence
            while True:
                sequence += 1
                try:
                    receipt = await link.push(replace(update, sequence=sequence, base=version))
                except (BaseExpired, BaseInFuture):
                    sequence -= 1
                    version = (await link.pull(None)).version
                    continue
                version = receipt.version
                notes.write(f"{sequence} {version} {time.monotonic()}\n")
                notes.flush()
                await asyncio.sleep(random.uniform(0, 2 * pause))


async def devices(url: str, folder: Path, seed: int, pause: float, names: list[str]) -> None:
    """Several in one process."""
    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            group.create_task(device(url, folder, name, seed + number, pause))


if __name__ == "__main__":
    url, folder, seed, pause, *names = sys.argv[1:]
    asyncio.run(devices(url, Path(folder), int(seed), float(pause), names))
