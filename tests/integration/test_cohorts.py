"""Rounds of a cohort over real sockets: who takes part, who waits, and what the others are told."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from edgeflock.client.transport import Link
from edgeflock.operations.status import print_status, status
from edgeflock.server.monitoring.feed import state
from edgeflock.shared.errors import BaseExpired, RunOver
from edgeflock.shared.protocol.messages import Model, Receipt
from tests.hosting import Hosted, hosting
from tests.integration.operator import ADMIN, operating
from tests.integration.test_gateway_tasks import behind
from tests.integration.test_tasks import link
from tests.integration.test_tasks import update as of_shard

COHORTS = ("coordination.mode=cohort", "coordination.deadline=3600", "coordination.cohort=1")
"""The first device stays for a round, each other one for its turns."""

Hosts = Callable[..., AbstractAsyncContextManager[Hosted]]


@pytest.fixture(params=[hosting, behind], ids=["directly", "through a gateway"])
def hosts(request: pytest.FixtureRequest) -> Hosts:
    found: Hosts = request.param
    return found


async def push(device: Link, base: int, sequence: int) -> Receipt:
    return await device.push(replace(of_shard(base, sequence, None), pull=True))


async def stands(waiting: asyncio.Task[object], hosted: Hosted, waiters: int) -> None:
    """Until so many devices are known to wait; `waiting` is for one of them."""
    turns = hosted.engine.turns
    assert turns is not None
    while turns.waiting < waiters:
        await asyncio.sleep(0.005)
    await hosted.writer.call(lambda: None)  # whatever was under way has been
    assert not waiting.done()


async def begun(hosted: Hosted, a: Link, b: Link) -> asyncio.Task[Model]:
    """`a` takes part, and `b` waits for the model."""
    await a.join()
    await a.pull(None)
    await b.join()
    waiting = asyncio.create_task(b.pull(None))
    await stands(waiting, hosted, 1)
    return waiting


@pytest.mark.parametrize("mode", ["cohort", "async"])
async def test_who_waits_for_its_turn_gets_the_model_when_it_has_come(
    hosts: Hosts, mode: str, tmp_path: Path
) -> None:
    settings = f"coordination.mode={mode}", "coordination.cohort_rounds=2"
    async with hosts(tmp_path, *COHORTS, *settings) as hosted:
        async with link(hosted.port, "a", "") as a, link(hosted.port, "b", "") as b:
            await a.join()
            assert (await a.pull(None)).version == 0
            await b.join()
            first = asyncio.create_task(b.pull(None))
            await stands(first, hosted, 1)
            assert await push(a, 0, 1) == Receipt(1, 1, None)
            again = asyncio.create_task(a.pull(0))
            assert (await first).version == 1
            await stands(again, hosted, 1)
            receipt = await push(b, 1, 1)
            if hosts is hosting:  # it has another turn
                assert receipt.model is not None
                assert receipt.model.version == 2
            else:
                assert (await b.pull(1)).version == 2
            assert not again.done()
            assert await push(b, 2, 2) == Receipt(2, 3, None)
            assert (await again).version == 3


async def test_who_leaves_makes_room(hosts: Hosts, tmp_path: Path) -> None:
    async with hosts(tmp_path, *COHORTS) as hosted:
        async with link(hosted.port, "b", "") as b:
            async with link(hosted.port, "a", "") as a:
                waiting = await begun(hosted, a, b)
            assert (await waiting).version == 0


async def test_who_waits_may_leave(hosts: Hosts, tmp_path: Path) -> None:
    async with hosts(tmp_path, *COHORTS) as hosted:
        async with link(hosted.port, "a", "") as a:
            await a.join()
            await a.pull(None)
            async with link(hosted.port, "b", "") as b:
                await b.join()
                waiting = asyncio.create_task(b.pull(None))
                await stands(waiting, hosted, 1)
                waiting.cancel()
            turns = hosted.engine.turns
            while turns is not None and turns.waiting:
                await asyncio.sleep(0.005)
            assert (await push(a, 0, 1)).version == 1


@pytest.mark.parametrize("how", ["updates", "judged"])
async def test_who_waits_is_told_that_the_run_is_over(hosts: Hosts, how: str, tmp_path: Path) -> None:
    async with hosts(tmp_path, *COHORTS, "end.updates=1") as hosted:
        async with link(hosted.port, "a", "") as a, link(hosted.port, "b", "") as b:
            waiting = await begun(hosted, a, b)
            if how == "updates":
                assert await push(a, 0, 1) == Receipt(1, 1, None)
                why = "it has its 1 update"
            else:
                why = "patience: 3 evaluations"
                await hosted.writer.call(lambda: hosted.engine.steering.end(why))
            with pytest.raises(RunOver, match=why):
                await waiting
            with pytest.raises(RunOver, match=why):
                await a.pull(0)


async def test_a_line_that_drops_loses_no_place_but_its_own(hosts: Hosts, tmp_path: Path) -> None:
    """The member's session is taken over by a newer one: it comes last, and what it sends counts."""
    async with hosts(tmp_path, *COHORTS) as hosted:
        async with link(hosted.port, "a", "") as a, link(hosted.port, "b", "") as b:
            waiting = await begun(hosted, a, b)
            await a.join()
            assert (await waiting).version == 0
            late = asyncio.create_task(push(a, 0, 1))
            while 1 not in hosted.engine.held_updates:
                await asyncio.sleep(0.005)
            await push(b, 0, 1)
            assert (await late).version == 1


async def test_who_does_not_wait_is_refused_and_comes_when_its_turn_has_come(
    hosts: Hosts, tmp_path: Path
) -> None:
    async with hosts(tmp_path, *COHORTS) as hosted:
        async with link(hosted.port, "a", "") as a, link(hosted.port, "b", "") as b:
            async with link(hosted.port, "c", "") as c:
                for device in (a, b, c):
                    await device.join()
                await a.pull(None)
                await push(a, 0, 1)
                assert (await b.pull(None)).version == 1
                with pytest.raises(BaseExpired, match="other devices take part"):
                    await push(c, 1, 1)
                waiting = asyncio.create_task(c.pull(None))
                await stands(waiting, hosted, 2)
                waiting.cancel()
            assert (await push(b, 1, 1)).version == 2


async def test_who_waits_is_shown_so_and_is_not_idle(hosts: Hosts, tmp_path: Path) -> None:
    async with hosts(tmp_path, *COHORTS, admin_token=ADMIN) as hosted:
        async with link(hosted.port, "a", "") as a, link(hosted.port, "b", "") as b:
            waiting = await begun(hosted, a, b)
            devices = hosted.registry.devices
            while not devices["b"].connection.awaits_turn:
                await asyncio.sleep(0.005)
            late = time.monotonic() + 3600
            assert [devices[name].is_idle(late) for name in "ab"] == [True, False]
            assert [state(devices[name], late) for name in "ab"] == ["idle", "waiting"]
            if hosts is hosting:  # a gateway has no status
                async with operating(hosted.port, "") as anybody:
                    known = json.loads((await anybody.get("/v1/status"))[1])
                assert known["cohort"] == {"members": 1, "waiting": 1}
                shown = StringIO()
                print_status(Console(file=shown, width=120), known)
                assert "Devices that take part: 1; that wait for a turn: 1" in shown.getvalue()
                assert re.search(r" waiting +0 ", shown.getvalue())
            await push(a, 0, 1)
            await waiting
            assert not devices["b"].connection.awaits_turn


async def test_who_is_paused_makes_room(tmp_path: Path) -> None:
    async with hosting(tmp_path, *COHORTS, admin_token=ADMIN) as hosted, operating(hosted.port) as operator:
        async with link(hosted.port, "a", "") as a, link(hosted.port, "b", "") as b:
            waiting = await begun(hosted, a, b)
            assert (await operator.post("/v1/devices/a/pause"))[0] == 200
            assert (await waiting).version == 0


async def test_status_says_who_waits_and_who_is_paused(tmp_path: Path) -> None:
    async with hosting(tmp_path, *COHORTS, admin_token=ADMIN) as hosted, operating(hosted.port) as operator:
        async with link(hosted.port, "a", "") as a, link(hosted.port, "b", "") as b:
            await a.join()
            await a.pull(None)
            await b.join()
            waiting = asyncio.create_task(b.pull(None))
            while not hosted.registry.devices["b"].connection.awaits_turn:
                await asyncio.sleep(0.005)

            async def said() -> str:
                written = StringIO()
                print_status(Console(file=written, width=200), await status(hosted.url, ADMIN, feed=False))
                return written.getvalue()

            assert re.search(r"^ b +waiting ", await said(), re.MULTILINE)
            assert (await operator.post("/v1/devices/b/pause"))[0] == 200
            assert re.search(r"^ b +paused  ", await said(), re.MULTILINE)
            assert (await operator.post("/v1/devices/b/resume"))[0] == 200
            await push(a, 0, 1)
            await waiting
            assert re.search(r"^ b +(training|idle) ", await said(), re.MULTILINE)
