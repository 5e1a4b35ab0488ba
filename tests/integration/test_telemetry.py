"""What a device tells while no update does: whether it starves, and at the end what became of its samples."""

import asyncio
import logging
from pathlib import Path

import pytest

from edgeflock.shared.protocol.messages import Facts
from tests.hosting import hosting
from tests.integration.foreign_client import TELEMETRY, Device, pack
from tests.integration.operator import operating
from tests.integration.test_feed import until_told
from tests.integration.test_injection import foreign
from tests.integration.test_reconnect import link, update

ACCOUNT: Facts = {"came": 60, "trained": 40, "drops": 3, "quarantined": 2, "duplicates": 1, "left": 14}


async def test_a_device_that_waits_for_samples_shows_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeflock.server.roster.statistics._MIN_SILENCE", 0.0)
    monkeypatch.setattr("edgeflock.server.roster.statistics._UNKNOWN_INTERVAL", 0.0)
    async with hosting(tmp_path) as hosted, operating(hosted.port, "") as viewer, link(hosted.port) as device:
        await device.join()
        await device.push(update(1, 0))
        async with viewer.feed() as frames:
            await frames.next()
            await device.send_facts({"waiting": 7.5, "depth": 2})
            await until_told(frames, "pi", state="starved", depth=2)
            await device.send_facts({"waiting": 0.0, "depth": 2})
            await until_told(frames, "pi", state="idle")
        assert hosted.registry.devices["pi"].statistics.updates == 1


async def test_a_device_may_tell_while_its_round_is_open(tmp_path: Path) -> None:
    async with hosting(tmp_path, "coordination.mode=rounds", "coordination.deadline=3600") as hosted:
        async with link(hosted.port, "one") as one, link(hosted.port, "two") as two:
            await one.join()
            await two.join()
            held = asyncio.create_task(one.push(update(1, 0)))
            reported = hosted.registry.devices["one"].statistics
            while not reported.telemetry:
                await one.send_facts({"depth": 4})
                await asyncio.sleep(0.01)
            assert not held.done()
            await two.push(update(1, 0))
            assert (await held).sequence == 1
            assert reported.telemetry == {"depth": 4}


async def test_what_became_of_every_sample_is_in_the_server_s_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = "60 samples came: 40 trained, 3 dropped, 2 quarantined, 1 duplicate, 14 left"
    with caplog.at_level(logging.INFO, "edgeflock.server"):
        async with hosting(tmp_path) as hosted:
            async with link(hosted.port) as device:
                await device.join()
                await device.send_facts(ACCOUNT)
            while said not in caplog.text:
                await asyncio.sleep(0.01)
            events, _ = hosted.hub.events.list_from(0)
            assert f"retired: it closed its session; {said}" in [event.text for event in events]


@pytest.mark.parametrize(
    "facts", [None, [], {"a": None}, {"a": float("nan")}, {str(each): 1 for each in range(33)}]
)
async def test_telemetry_that_is_none_is_malformed(facts: object, tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, foreign(hosted.port, "pi") as device:
        device.send(pack([TELEMETRY, facts]))
        await refused(device)


async def refused(device: Device) -> None:
    assert (await device.answer())[1] == "malformed"
    assert await device.closed() == (4400, "malformed")
