"""What changes in a run: in order, at one place for all who watch; rates and states by the clock."""

import asyncio
from contextlib import suppress
from typing import get_args

import pytest

from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.server.connections.traffic import Meter
from edgeflock.server.roster.hub import Hub
from edgeflock.server.roster.registry import Device
from edgeflock.shared.codecs import sparse
from edgeflock.shared.protocol.frames import RunState
from edgeflock.shared.protocol.messages import Update


def update(sequence: int, loss: float = 0.5, index_mode: int = sparse.GOLOMB) -> Update:
    return Update(sequence, 0, index_mode, 0, 1, b"", b"", loss, 10, False)


async def test_devices_come_once_and_the_last_changed_first() -> None:
    hub = Hub(lambda: 0, Meter())
    devices = [Device(f"pi-{number}", number) for number in (1, 2, 3)]
    for device in devices:
        hub.mark_changed(device)
    seen = hub.changes
    assert list(hub.devices_changed_since(seen)) == []
    for number in (0, 2, 0, 0):
        hub.mark_changed(devices[number])
    assert [device.id for device in hub.devices_changed_since(seen)] == [1, 3]
    assert [device.id for device in hub.devices_changed_since(0)] == [1, 3, 2]


async def test_a_resent_update_is_counted_once() -> None:
    hub, device = Hub(lambda: 0, Meter()), Device("pi", 1)
    for sequence, tau, mode in ((1, 0, sparse.GOLOMB), (1, 0, sparse.GOLOMB), (2, 5, sparse.DENSE)):
        hub.count_update(device, update(sequence, index_mode=mode), tau)
    tally = hub.tally
    assert (tally.updates, tally.samples, tally.compressed) == (2, 20, 1)
    assert (tally.staleness[:4], tally.staleness_sum) == ([1, 0, 0, 1], 5)
    assert device.statistics.updates == 2


async def test_the_loss_is_that_of_many_devices_and_always_a_number() -> None:
    hub, device = Hub(lambda: 0, Meter()), Device("pi", 1)
    hub.count_update(device, update(1, float("nan")), 0)
    assert hub.tally.loss is None
    for sequence in range(2, 1000):
        hub.count_update(device, update(sequence, float("inf") if sequence == 500 else 1.0 + sequence % 2), 0)
    assert hub.tally.loss == pytest.approx(1.5, abs=0.02)


def test_rates_are_those_of_the_last_seconds() -> None:
    traffic, version = Meter(), [0]

    async def scene() -> None:
        hub = Hub(lambda: version[0], traffic)
        running = asyncio.create_task(hub.run(lambda: "training", lambda: None))
        for _ in range(60):
            await asyncio.sleep(0.5)
            version[0] += 5
            traffic.ingress += 500
        assert hub.rates() == pytest.approx((10, 1000, 0), rel=0.1)
        await asyncio.sleep(15)
        assert hub.rates() == (0, 0, 0)
        await ended(running)

    run_virtually(scene())


def test_the_run_s_end_is_told_once() -> None:
    async def scene() -> None:
        states: list[RunState] = ["training"]
        hub = Hub(lambda: 0, Meter())
        running = asyncio.create_task(hub.run(lambda: states[-1], lambda: "why"))
        for state in get_args(RunState):
            states.append(state)
            await asyncio.sleep(3)
        await ended(running)
        assert sorted(event.kind for event in hub.events.list_from(0)[0]) == ["diverged", "finished"]

    run_virtually(scene())


async def ended(running: "asyncio.Task[None]") -> None:
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
