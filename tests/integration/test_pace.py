"""Devices that go on faster than they may: they are held back, others are not, and nothing is lost."""

import asyncio
import json
from pathlib import Path

import pytest

from edgeflock.server.roster import rate_limiter
from edgeflock.shared.model.layout import Layout
from tests.hosting import hosting
from tests.integration.foreign_client import MODEL, PULL, RECEIPT, Device, joined, pack
from tests.integration.operator import ADMIN, operating
from tests.integration.scene import update


async def test_what_comes_too_fast_is_answered_in_its_time(tmp_path: Path) -> None:
    """All of it, in order, of a device that waits for no answer."""
    settings = "limits.device_rate=20000"
    async with hosting(tmp_path, settings, admin_token=ADMIN) as server:
        async with joined(server.port, "hasty") as (device, _):
            for number in range(8):
                device.send(update(sequence=number + 1, base=number))
            for number in range(8):
                assert await device.answer() == [RECEIPT, number + 1, number + 1]
            async with operating(server.port, ADMIN) as operator:
                status = json.loads((await operator.get("/v1/status"))[1])
                assert status["paced"] == status["devices"][0]["paced"] > 0
                metrics = (await operator.get("/metrics"))[1]
                assert "edgeflock_paced_seconds_total 0.0\n" not in metrics
                assert "edgeflock_paced_seconds_total" in metrics


async def is_silent(device: Device) -> bool:
    try:
        async with asyncio.timeout(0.3):
            await device.receive()
    except TimeoutError:
        return True
    return False


async def test_a_device_that_asks_without_end_waits_and_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also under the next session of its name."""
    monkeypatch.setattr(rate_limiter, "LONGEST_WAIT", 1e9)
    monkeypatch.setattr(rate_limiter, "RECORD_COST", 0)
    async with hosting(tmp_path, "limits.device_rate=4096") as server:
        async with joined(server.port, "honest") as (honest, _), joined(server.port, "a") as (a, welcome):
            for whole in (0, None):  # a difference must be made as well
                assert (await a.ask([PULL, whole]))[0] == MODEL
            monkeypatch.setattr(
                rate_limiter, "NUMBER_COST", 1 << 20
            )  # more than a slow machine lets it pay meanwhile
            assert (await a.ask([PULL, 0]))[0] == MODEL
            a.send(pack([PULL, 0]))
            assert await is_silent(a)
            async with joined(server.port, "a", secret=welcome[22]) as (again, _):
                again.send(pack([PULL, 0]))
                assert await is_silent(again)
                for number in range(5):
                    honest.send(update(sequence=number + 1, base=number))
                    assert (await honest.answer())[0] == RECEIPT
                    assert (await honest.ask([PULL, number]))[0] == MODEL


async def test_who_gives_pays_for_what_travels_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "LONGEST_WAIT", 1e9)
    monkeypatch.setattr(rate_limiter, "RECORD_COST", 0)
    async with hosting(tmp_path, "limits.device_rate=4096") as server:
        async with joined(server.port, "pi") as (device, _):
            for number in range(5):  # more than the bucket has, if making them counted
                assert (await device.ask([PULL, None]))[0] == MODEL
                device.send(update(sequence=number + 1, base=number))
                assert (await device.answer())[0] == RECEIPT


async def test_requests_of_a_device_count_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "LONGEST_WAIT", 1e9)
    monkeypatch.setattr(rate_limiter, "RECORD_COST", 0)
    large = Layout.from_shapes([("w", (100_000,))])
    async with hosting(tmp_path, "limits.device_rate=1024", closed=True, layout=large) as server:
        operators = server.register.create("admin").text
        async with (
            operating(server.port, server.enrol("greedy").credential) as greedy,
            operating(server.port, server.enrol("pi").credential) as pi,
        ):
            # It had to be made all the same.
            assert (await greedy.get("/v1/model", {"If-None-Match": "*"}))[0] == 304
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await greedy.get("/v1/status")
            assert (await pi.get("/v1/status"))[0] == 200
            async with operating(server.port, operators) as operator:
                for _ in range(20):
                    assert (await operator.get("/v1/status"))[0] == 200
