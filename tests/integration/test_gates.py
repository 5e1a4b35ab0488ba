"""Gates over real sockets, and in an emulated fleet."""

import asyncio
from pathlib import Path

import pytest

from tests.devices.emulation.fleets import CHURN, MIXED, fleet_of, run
from tests.hosting import hosting
from tests.integration.test_rounds import link, update


@pytest.mark.parametrize("gate", ["ssp", "asp"])
async def test_one_that_is_ahead_is_answered_later(tmp_path: Path, gate: str) -> None:
    settings = (f"coordination.gate={gate}", "coordination.bound=0")
    async with hosting(tmp_path, *settings) as hosted:
        async with link(hosted.port, "fast") as fast, link(hosted.port, "slow") as slow:
            await fast.join()
            await slow.join()
            waiting = asyncio.create_task(fast.push(update(0)))
            while not hosted.engine.published.version:
                await asyncio.sleep(0.005)
            assert not waiting.done()
            assert (await slow.push(update(0))).version == 2
            receipt = await waiting
            assert receipt.version == 1
            assert receipt.model is not None
            assert receipt.model.version == 2


@pytest.mark.parametrize("gate", ["ssp", "asp"])
async def test_nobody_waits_for_one_that_has_left(tmp_path: Path, gate: str) -> None:
    settings = (f"coordination.gate={gate}", "coordination.bound=0")
    async with hosting(tmp_path, *settings) as hosted, link(hosted.port, "fast") as fast:
        await fast.join()
        async with link(hosted.port, "slow") as slow:
            await slow.join()
            waiting = asyncio.create_task(fast.push(update(0)))
            while not hosted.engine.published.version:
                await asyncio.sleep(0.005)
            assert not waiting.done()
        assert (await waiting).version == 1


def pushes(*settings: str) -> dict[int, int]:
    """device -> how many of its updates a fleet of quick and slow devices took."""
    ran = run(fleet_of(MIXED, *settings))
    assert ran.result.ended == "complete"
    devices = [push.device for push, _ in ran.server.accepted]
    return {device: devices.count(device) for device in range(1, 7)}


@pytest.mark.parametrize("bound", [0, 2])
def test_a_fleet_stays_together(bound: int) -> None:
    loose = pushes()
    tight = pushes("coordination.gate=ssp", f"coordination.bound={bound}")
    assert max(loose.values()) - min(loose.values()) > bound + 1
    assert max(tight.values()) - min(tight.values()) <= bound + 1
    assert pushes("coordination.gate=ssp", f"coordination.bound={bound}") == tight


@pytest.mark.parametrize("gate", ["ssp", "asp"])
def test_a_fleet_that_comes_and_goes_gets_through(gate: str) -> None:
    pushes(f"coordination.gate={gate}", "coordination.bound=1", *CHURN)
