"""Devices behind gateways, over real sockets: what a device is promised holds through any of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from edgeflock.client.identity import Identity
from edgeflock.client.training.replica import Replica
from edgeflock.client.transport import Link
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import NORMAL, Filling, Start
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from tests.hosting import LAYOUT, Hosted, gateway, hosting
from tests.integration.test_lossy import NORMED, Device, hurry

START = Start(3, tuple(Filling(NORMAL, 0.0, 0.5) for _ in LAYOUT.tensors))
RATE = "coordination.learning_rate=0.05"


@asynccontextmanager
async def joined(
    servers: str,
    name: str,
    layout: Layout = LAYOUT,
    identity: Identity | None = None,
    replica: Replica | None = None,
    secret: bytes = b"",
) -> AsyncIterator[Device]:
    """A device that has joined at one of the `servers`."""
    hello = Hello(PROTOCOL, name, layout.digest, {}, secret=secret)
    async with Link(servers, identity, hello, Random(0), hurry) as link:
        welcome = await link.join()
        device = Device(link, replica or Replica(layout, welcome.start), layout, welcome.sequence)
        if replica is None:
            await device.pull()
        yield device


def replays(hosted: Hosted) -> bool:
    """Whether the journal comes to the model, bit for bit."""
    again = replay(hosted.journal, hosted.engine.layout)
    return again.theta.tobytes() == hosted.engine.parameters.theta.tobytes()


async def same(hosted: Hosted, device: Device) -> bool:
    """Whether a device that pulls holds the leader's model, bit for bit."""
    await device.pull()
    return device.replica.theta.tobytes() == hosted.engine.parameters.theta.tobytes()


@pytest.mark.parametrize("layout", [LAYOUT, NORMED])
async def test_devices_train_through_a_gateway(tmp_path: Path, layout: Layout) -> None:
    async with hosting(tmp_path, RATE, layout=layout) as leader, gateway(leader) as (_, url):
        async with AsyncExitStack() as stack:
            devices = [await stack.enter_async_context(joined(url, f"d{n}", layout)) for n in range(3)]
            direct = await stack.enter_async_context(joined(leader.url, "direct", layout))
            for _ in range(5):
                await asyncio.gather(*(device.step() for device in (*devices, direct)))
            assert leader.engine.published.version == 20
            assert all([await same(leader, device) for device in devices])
            assert replays(leader)
            roster = leader.registry.devices
            assert [roster[f"d{n}"].statistics.updates for n in range(3)] == [5, 5, 5]
            assert all(roster[f"d{n}"].connection.here for n in range(3))
            assert leader.hub.tally.updates == 20
        while any(device.connection.here for device in leader.registry.devices.values()):
            await asyncio.sleep(0.01)
        assert leader.registry.devices["d0"].connection.why_left == "retired: it closed its session"
