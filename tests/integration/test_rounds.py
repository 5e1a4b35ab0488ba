"""Rounds over real sockets: who is waited for, who is left out, and who comes back."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from edgeflock.client.transport import Link
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import BaseExpired
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Receipt, Update
from tests.hosting import LAYOUT, Hosted, hosting
from tests.integration.foreign_client import PING, PONG, joined
from tests.integration.scene import update as packed_update
from tests.proxy import proxying

PATIENT = ("coordination.mode=rounds", "coordination.deadline=3600")


async def at_once(seconds: float) -> None:
    await asyncio.sleep(0)


def link(port: int, name: str) -> Link:
    hello = Hello(PROTOCOL, name, LAYOUT.digest, {})
    return Link(f"http://127.0.0.1:{port}", None, hello, Random(0), at_once)


def update(base: int, sequence: int = 1, samples: int = 10) -> Update:
    delta = np.full(LAYOUT.size, sequence, np.float32)
    mode = values.CODINGS["f32"].mode
    return Update(
        sequence, base, sparse.DENSE, mode, delta.size, b"", delta.tobytes(), 0.5, samples, pull=True
    )


async def gathered(hosted: Hosted, count: int) -> None:
    """Until so many updates wait."""
    while len(hosted.engine.held_updates) < count:
        await asyncio.sleep(0.005)


async def test_a_round_waits_for_all_who_are_connected(tmp_path: Path) -> None:
    async with hosting(tmp_path, *PATIENT) as hosted:
        async with link(hosted.port, "a") as a, link(hosted.port, "b") as b, link(hosted.port, "c") as c:
            for device in (a, b, c):
                await device.join()
            first = [asyncio.create_task(device.push(update(0))) for device in (a, b)]
            await gathered(hosted, 2)
            assert hosted.engine.published.version == 0
            receipts: list[Receipt] = await asyncio.gather(*first, c.push(update(0)))
            assert sorted(receipt.version for receipt in receipts) == [1, 2, 3]
            for receipt in receipts:
                assert receipt.model is not None
                assert receipt.model.version == 3


async def test_whoever_leaves_is_not_waited_for(tmp_path: Path) -> None:
    async with hosting(tmp_path, *PATIENT) as hosted, link(hosted.port, "a") as a:
        await a.join()
        async with link(hosted.port, "b") as b:
            await b.join()
            waiting = asyncio.create_task(a.push(update(0)))
            await gathered(hosted, 1)
        assert (await waiting).version == 1


async def test_the_contribution_of_one_that_left_counts(tmp_path: Path) -> None:
    async with hosting(tmp_path, *PATIENT) as hosted, link(hosted.port, "a") as a:
        await a.join()
        async with link(hosted.port, "b") as b:
            await b.join()
            lost = asyncio.create_task(b.push(update(0)))
            await gathered(hosted, 1)
            lost.cancel()
        await a.push(update(0))
        assert hosted.engine.published.version == 2
        async with link(hosted.port, "b") as again:
            assert (await again.join()).sequence == 1


async def test_one_that_reconnects_while_it_waits_waits_on(tmp_path: Path) -> None:
    async with hosting(tmp_path, *PATIENT) as hosted:
        async with link(hosted.port, "a") as a, link(hosted.port, "b") as b:
            await a.join()
            await b.join()
            waiting = asyncio.create_task(b.push(update(0)))
            await gathered(hosted, 1)
            device = hosted.registry.devices["b"]
            assert device.connection.session is not None
            await device.connection.session.leave()
            while b.connections < 2 or device.connection.session is None:
                await asyncio.sleep(0.005)
            await a.push(update(0))
            assert (await waiting).version == 1
            assert hosted.engine.published.version == 2


async def test_the_deadline_leaves_stragglers_out(tmp_path: Path) -> None:
    settings = ("coordination.mode=rounds", "coordination.deadline=0.2")
    async with hosting(tmp_path, *settings) as hosted:
        async with link(hosted.port, "fast") as fast, link(hosted.port, "slow") as slow:
            await fast.join()
            await slow.join()
            assert (await fast.push(update(0))).version == 1
            with pytest.raises(BaseExpired):
                await slow.push(update(0))
            assert (await slow.pull(None)).version == 1
            assert (await slow.push(update(1))).version == 2


async def test_a_quorum_is_enough(tmp_path: Path) -> None:
    async with hosting(tmp_path, *PATIENT, "coordination.quorum=2") as hosted:
        async with link(hosted.port, "a") as a, link(hosted.port, "b") as b, link(hosted.port, "c") as c:
            for device in (a, b, c):
                await device.join()
            await asyncio.gather(a.push(update(0)), b.push(update(0)))
            with pytest.raises(BaseExpired):
                await c.push(update(0))


async def test_pings_are_answered_while_a_round_is_open(tmp_path: Path) -> None:
    """Without that, either end would take the other for dead after one and a half heartbeats."""
    async with hosting(tmp_path, *PATIENT) as hosted, proxying(hosted.port) as proxy:
        async with (
            joined(hosted.port, "foreign") as (foreign, _),
            link(proxy.port, "a") as a,
            link(hosted.port, "b") as b,
        ):
            await a.join()
            await b.join()
            waiting = asyncio.create_task(a.push(update(0)))
            foreign.send(packed_update(sequence=1, base=0))
            await gathered(hosted, 2)

            foreign.send(b"are you there?", PING)
            assert await foreign.receive() == (PONG, b"are you there?")

            answered = asyncio.Event()

            def heard(chunk: bytes) -> bool:
                if chunk[0] == 0x80 | PONG:
                    answered.set()
                return False

            proxy.cut_upstream = heard
            proxy.say(bytes([0x80 | PING, 3]) + b"you")
            await answered.wait()

            assert not waiting.done()
            await b.push(update(0))
            await waiting
            assert a.connections == 1


async def test_a_server_that_stops_leaves_its_round_open(tmp_path: Path) -> None:
    """It is not in the journal, so its devices send their updates again; nobody's share has grown."""
    async with AsyncExitStack() as devices:
        async with hosting(tmp_path, *PATIENT) as hosted:
            a = await devices.enter_async_context(link(hosted.port, "a"))
            b = await devices.enter_async_context(link(hosted.port, "b"))
            await a.join()
            await b.join()
            waiting = asyncio.create_task(a.push(update(0)))
            await gathered(hosted, 1)
        waiting.cancel()
    async with hosting(tmp_path, *PATIENT) as hosted, link(hosted.port, "a") as a:
        assert (await a.join()).version == 0
        assert (await a.push(replace(update(0), samples=3))).version == 1


async def test_an_update_counts_though_its_device_was_away_when_the_round_ended(tmp_path: Path) -> None:
    async with hosting(tmp_path, *PATIENT) as hosted, link(hosted.port, "a") as a:
        await a.join()
        async with link(hosted.port, "b") as b:
            await b.join()
            lost = asyncio.create_task(b.push(update(0)))
            await gathered(hosted, 1)
            lost.cancel()
        await a.push(update(0))
        async with link(hosted.port, "b") as b:
            await b.join()
            assert (await b.push(update(0))).version == 1
        devices = hosted.registry.devices
        assert (
            devices["a"].statistics.updates,
            devices["b"].statistics.updates,
            hosted.engine.published.version,
        ) == (1, 1, 2)
