"""Samples from device to device through gateways: what is promised directly, by the same tests, and more."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from edgeflock.server.roster import relay
from edgeflock.shared.protocol import gateway as protocol
from edgeflock.shared.protocol import wire
from tests.hosting import gateway, hosting
from tests.integration import test_injection
from tests.integration.foreign_client import REFUSAL
from tests.integration.test_gateway_tasks import behind
from tests.integration.test_hostile_gateway import hostile
from tests.integration.test_injection import ON, foreign, samples, sharing, until_shared
from tests.integration.test_reconnect import update

PROMISES = [
    test_injection.test_samples_are_dealt_out_among_others_that_share_and_nobody_else,
    test_injection.test_samples_are_taken_while_an_update_waits_for_its_round,
    test_injection.test_samples_that_were_on_a_lost_line_are_lost_and_no_more,
]


@pytest.mark.parametrize("promise", PROMISES)
async def test_what_is_promised_holds_through_a_gateway(
    promise: Callable[[Path], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_injection, "hosting", behind)
    await promise(tmp_path)


@pytest.mark.parametrize("name", ["no samples", "text", "cut short", "too many"])
async def test_malformed_samples_go_no_further_than_a_gateway(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_injection, "hosting", behind)
    await test_injection.test_malformed_samples_are_refused_and_go_to_nobody(name, tmp_path)


@pytest.mark.parametrize(("settings", "shares"), [((), True), (ON, False)])
async def test_nothing_is_taken_without_consent_through_a_gateway(
    settings: tuple[str, ...], shares: bool, tmp_path: Path
) -> None:
    async with behind(tmp_path, *settings) as hosted, sharing(hosted.port, "other") as (other,):
        async with foreign(hosted.port, "a", shares=shares) as device:
            device.send(wire.encode(samples(3)))
            assert (await device.answer())[:2] == [REFUSAL, "unexpected-record"]
            assert await device.closed() == (4405, "unexpected-record")
        await other.push(update(1, 0))
        assert other.got == []
        assert hosted.relay.samples == 0


async def test_samples_are_dealt_out_over_gateways_and_accounted_for(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, *ON) as leader,
        gateway(leader, "one") as (_, first),
        gateway(leader, "two") as (_, second),
    ):
        one, two = (int(url.rpartition(":")[2]) for url in (first, second))
        async with (
            sharing(one, "a", "b") as (a, b),
            sharing(two, "c") as (c,),
            sharing(leader.port, "d") as (d,),
        ):
            await a.share(samples(3))
            await until_shared(leader, 3)
            for device in (b, c, d):
                await device.push(update(1, 0))
            got = [record for device in (b, c, d) for record in device.got]
            assert got == relay.parts(samples(3), 3), "each of them once"
            await a.share(samples(3))
            await until_shared(leader, 6)
            reported = {n: leader.registry.devices[n].statistics for n in "abcd"}
            assert reported["a"].shared == 6
            assert [reported[n].received for n in "bcd"] == [2, 2, 1], "d has to come for it"
        while any(device.connection.is_connected for device in leader.registry.devices.values()):
            await asyncio.sleep(0.005)
        assert [reported[n].received for n in "bcd"] == [1, 1, 1]
        assert leader.relay.dropped == 3


async def test_what_waits_at_a_gateway_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "WAITING_BYTES", 10_000)
    async with behind(tmp_path, *ON) as hosted, sharing(hosted.port, "a", "b") as (a, b):
        for number in range(1, 6):
            await a.share(samples(number))
        await until_shared(hosted, 15)
        await b.push(update(1, 0))
        assert b.got == [samples(4), samples(5)], "a record counts as 4 KiB at least"
        while hosted.relay.dropped < 6:
            await asyncio.sleep(0.005)
        assert hosted.registry.devices["b"].statistics.received == 9


async def test_a_gateway_that_makes_samples_up_is_sent_away(tmp_path: Path) -> None:
    made_up = (
        (protocol.Shared(1, wire.encode(samples(3))), 4405),  # of a device that does not share
        (protocol.Shared(1, b"\xc1"), 4400),
        (protocol.Spilled(1, 1), 4400),  # of which it was given none
    )
    async with hosting(tmp_path, *ON) as leader:
        for item, code in made_up:
            async with hostile(leader) as line:
                await line.let_in()
                await line.say(item)
                assert (await line.closed())[0] == code
        assert leader.relay.samples == 0
