"""The devices of a fleet: each has a class and its share of the data."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from edgeflock.client.backends import Backend
from edgeflock.client.data import Shuffled
from edgeflock.client.data.acting import Actor
from edgeflock.client.data.batcher import Shards
from edgeflock.devices.emulation.config import DeviceClass, FleetFile, headcount
from edgeflock.devices.emulation.device import EmulatedDevice
from edgeflock.devices.emulation.fleet.preparing import PreparedFleet
from edgeflock.devices.emulation.server import EmulatedServer
from edgeflock.devices.emulation.session import ClassTotals
from edgeflock.devices.emulation.speed import DeviceSpeed
from edgeflock.devices.emulation.streams import EmulatedStream
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.data.rates import ShiftedCurve, constant_rate, curve
from edgeflock.shared.environments import Environment
from edgeflock.shared.protocol.messages import Facts


def create_totals(file: FleetFile) -> dict[str, ClassTotals]:
    """Return class -> its totals. The number of devices is set; the rest is counted during the run."""
    counts = headcount(file.classes, file.fleet.devices)
    return {name: ClassTotals(devices=count) for name, count in counts.items()}


def make_devices(
    prepared: PreparedFleet,
    seed: int,
    server: EmulatedServer,
    backends: Callable[[int], Backend],
    totals: Mapping[str, ClassTotals],
    health_of: Callable[[str], Callable[[], Facts]],
) -> Iterator[tuple[int, EmulatedDevice]]:
    """Yield (number in the journal, device).

    Classes are dealt over the shares at random, so that no class gets certain data. `backends` maps a
    device's place in the fleet to its backend. `health_of` maps its name to its telemetry.
    """
    file = prepared.file
    kinds = file.classes
    names = np.random.default_rng([seed, 0]).permutation(
        np.repeat(list(totals), [total.devices for total in totals.values()])
    )
    paces = {name: DeviceSpeed.from_class(kind, prepared.flops) for name, kind in kinds.items()}
    for index, kind in enumerate(names):
        data = prepared.environments.get(kind) or prepared.shares[index]
        name = f"{kind}-{index}"
        number = server.engine.device_id(name)
        shards = _device_shards(index, file)
        yield (
            number,
            EmulatedDevice(
                name,
                kinds[kind],
                paces[kind],
                server,
                backends(index),
                _shard_batches(prepared.shares, shards, seed, index)
                if shards
                else _batches(kinds[kind], data, seed, index, file.client.hold_out),
                totals[kind],
                np.random.default_rng([seed, 2, index]),
                np.random.default_rng([seed, 4, index]),
                health_of(name),
                [f"shard-{shard}" for shard in shards],
            ),
        )


def _device_shards(index: int, file: FleetFile) -> list[int]:
    """Return a device's data shards in a run of tasks, its own first: a column of the cyclic matrix."""
    if not file.coordination.traits.tasks:
        return []
    shards = range(file.fleet.holds or file.coordination.tasks)
    return [(index + step) % file.fleet.devices for step in shards]


def _shard_batches(data: Sequence[Dataset], shards: Sequence[int], seed: int, index: int) -> Shards:
    """Return the batches of the device's data shards. Each device draws its own batches of a shard."""
    return Shards([Shuffled(data[one], np.random.default_rng([seed, 1, index, one])) for one in shards])


def _batches(
    kind: DeviceClass, data: Dataset | Environment, seed: int, index: int, hold_out: float
) -> Shuffled | EmulatedStream | Actor:
    random = np.random.default_rng([seed, 1, index])
    if isinstance(data, Environment):
        return Actor(data, random)
    own = np.random.default_rng([seed, 3, index])
    rate = curve(kind.rate, own)
    if rate == constant_rate(0):
        return Shuffled(data, random, hold_out=hold_out)
    if rate.period < math.inf:  # each device starts at another phase of the curve
        rate = ShiftedCurve(rate, own.uniform(0, rate.period))
    everything = kind.buffer == "persistence"
    return EmulatedStream(data, rate, random, kind.batch_min, kind.batch_max, everything=everything)
