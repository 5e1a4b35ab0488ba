"""The gate over real sockets, and in an emulated fleet."""

import asyncio
from pathlib import Path

from tests.devices.emulation.fleets import CHURN, MIXED, fleet_of, run
from tests.hosting import hosting
from tests.integration.test_rounds import link, update


async def test_one_that_is_ahead_is_answered_later(tmp_path: Path) -> None:
    settings = ("coordination.gate=asp", "coordination.bound=0")
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


async def test_nobody_waits_for_one_that_has_left(tmp_path: Path) -> None:
    settings = ("coordination.gate=asp", "coordination.bound=0")
    async with hosting(tmp_path, *settings) as hosted, link(hosted.port, "fast") as fast:
        await fast.join()
        async with link(hosted.port, "slow") as slow:
            await slow.join()
            waiting = asyncio.create_task(fast.push(update(0)))
            while not hosted.engine.published.version:
                await asyncio.sleep(0.005)
            assert not waiting.done()
        assert (await waiting).version == 1


def test_a_fleet_that_comes_and_goes_gets_through() -> None:
    ran = run(fleet_of(MIXED, "coordination.gate=asp", "coordination.bound=1", *CHURN))
    assert ran.result.ended == "complete"
