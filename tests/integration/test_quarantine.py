"""A device that is refused again and again stays out for a time, over restarts, until somebody lets it in."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from edgeflock.client.identity import ClientIdentity
from edgeflock.client.transport import Link
from edgeflock.client.transport.retrying import MAX_DELAY
from edgeflock.server.identity import Register
from edgeflock.server.identity.quarantine import FIRST_SECONDS
from edgeflock.shared.errors import BaseExpired, NonFinite, Quarantined
from tests.hosting import Hosted, hosting
from tests.integration.foreign_client import REFUSAL, proved
from tests.integration.operator import operating
from tests.integration.test_reconnect import link, update

BAD = replace(update(1, 0), values=b"\xff" * 36)
"""Not numbers."""

SETTINGS = ("limits.refusals=3", "coordination.window=2")


class Met(Exception):
    """The device would wait now."""


def patient(hosted: Hosted, identity: ClientIdentity, sleep: Callable[[float], Awaitable[None]]) -> Link:
    return Link(hosted.url, identity, link(0, identity.name).conversation.hello, Random(0), sleep)


async def misbehave(hosted: Hosted, identity: ClientIdentity, waits: list[float]) -> None:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        raise Met

    async with patient(hosted, identity, sleep) as device:
        await device.join()
        for _ in range(3):
            with pytest.raises(NonFinite):
                await device.push(BAD)
        with pytest.raises(Met):
            await device.push(BAD)


async def is_let_in(hosted: Hosted, identity: ClientIdentity) -> bool:
    async def sleep(seconds: float) -> None:
        raise Met

    async with patient(hosted, identity, sleep) as device:
        try:
            await device.join()
        except Met:
            return False
        return True


async def test_a_device_that_is_refused_again_and_again_stays_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []
    async with hosting(tmp_path, *SETTINGS, closed=True) as hosted:
        pi, jetson = hosted.enrol("pi"), hosted.enrol("jetson")
        with caplog.at_level(logging.WARNING):
            await misbehave(hosted, pi, waits)
        assert FIRST_SECONDS / 2 < waits[0] <= FIRST_SECONDS + 1, "it waits, and does not ask again and again"
        assert "'pi' is in quarantine until 2" in caplog.text
        assert "more than 3 refusals in 60 s, the last non-finite: " in caplog.text
        assert not await is_let_in(hosted, pi)
        assert await is_let_in(hosted, jetson)
        async with proved(hosted.port, "pi", pi.key, pi.credential, pi.realm) as (stranger, answer):
            assert (answer[:2], answer[3]) == ([REFUSAL, "quarantined"], None)
            assert 0 < answer[4] <= FIRST_SECONDS
            assert await stranger.closed() == (4425, "quarantined")
        async with operating(hosted.port, hosted.register.create("viewer").text) as viewer:
            (reported,) = (
                one
                for one in json.loads((await viewer.get("/v1/status"))[1])["devices"]
                if one["name"] == "pi"
            )
            assert reported["paused_because"].startswith("in quarantine until ")
            row = json.loads((await viewer.get("/v1/devices/pi"))[1])["device"]
            assert (row["state"], row["paused_because"]) == ("paused", reported["paused_because"])
        lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        (line,) = (line for line in lines if "quarantined" in line["did"])
        assert (line["who"], line["did"], line["seconds"]) == (
            "the server",
            "quarantined 'pi'",
            FIRST_SECONDS,
        )
        assert hosted.hub.tally.refusals["quarantined"] == 3
    async with hosting(tmp_path, *SETTINGS, closed=True) as again:
        assert not await is_let_in(again, pi)
        with closing(Register(tmp_path)) as command:  # another process
            command.release("pi")
        async with asyncio.timeout(300):
            while not await is_let_in(again, pi):
                await asyncio.sleep(0.05)
        await misbehave(again, pi, waits)
        assert waits[-1] <= FIRST_SECONDS + 1, "it was forgotten"


async def test_sessions_that_are_ended_count_together(tmp_path: Path) -> None:
    async with hosting(tmp_path, *SETTINGS, closed=True) as hosted:
        pi = hosted.enrol("pi")
        for number in range(4):
            async with link(hosted.port, "pi", pi) as device:
                await device.join()
                assert device._dialer.session is not None
                await device._dialer.session.send(b"what is this")
                with pytest.raises(Exception) as refused:  # noqa: PT011  # of two kinds
                    await device._dialer.session.answer()
                assert isinstance(refused.value, Quarantined) == (number == 3)


async def test_what_honest_devices_meet_does_not_count(tmp_path: Path) -> None:
    async with hosting(tmp_path, *SETTINGS, closed=True) as hosted:
        pi = hosted.enrol("pi")
        async with link(hosted.port, "pi", pi) as device:
            await device.join()
            for number in range(4):
                await device.push(update(number + 1, number))
            for _ in range(10):
                with pytest.raises(BaseExpired):
                    await device.push(update(9, 0))


async def test_in_an_open_run_there_is_nobody_to_be_kept_out(tmp_path: Path) -> None:
    async with hosting(tmp_path, *SETTINGS) as hosted, link(hosted.port) as device:
        await device.join()
        for _ in range(10):
            with pytest.raises(NonFinite):
                await device.push(BAD)


async def test_a_server_cannot_send_a_device_away_for_ever() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    refusal = Quarantined("come back in the next century")
    refusal.seconds = 1 << 40
    answers = iter([refusal, None])

    async def attempt() -> None:
        if (answer := next(answers)) is not None:
            raise answer

    device = link(1)
    device._retries._sleep = sleep
    await device._retries.until_answered(attempt)
    assert MAX_DELAY <= waits[0] <= MAX_DELAY + 1
