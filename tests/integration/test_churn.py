"""Devices that come and go faster than the server can greet them."""

import asyncio
from pathlib import Path

import pytest

from edgeflock.server.sessions.session import Session
from tests.integration.foreign_client import (
    BINARY,
    HELLO,
    MODEL,
    PULL,
    WELCOME,
    Device,
    connected,
    joined,
)
from tests.integration.scene import hello, unchanged, update


@pytest.fixture
def never_spinning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that supersedes another for ever would freeze the event loop, the test and its timeout."""
    supersede, calls = Session.supersede, 0

    async def counted(self: Session) -> None:
        nonlocal calls
        calls += 1
        assert calls < 100, "the server spins"
        await supersede(self)

    monkeypatch.setattr(Session, "supersede", counted)


async def _until_closed(device: Device) -> int:
    """Read on, as a device would, until the server closes; with which code, 0 if without one."""
    try:
        while (reported := await device.receive())[0] == BINARY:
            pass
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0
    device.send(reported[1][:2], 8)
    return int.from_bytes(reported[1][:2], "big")


@pytest.mark.usefixtures("never_spinning")
async def test_one_name_from_many_places_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of many sessions of one name the one that has it keeps it, and the server serves on."""
    async with unchanged(tmp_path, caplog) as scene, connected(scene.server.port) as last:
        rivals = [Device(*await asyncio.open_connection("127.0.0.1", scene.server.port)) for _ in range(4)]
        for rival in rivals:
            await rival.upgrade()
        there = asyncio.create_task(_until_closed(scene.device))
        for rival in rivals:
            rival.send(hello(device="pi"))
        assert [await _until_closed(rival) for rival in rivals] == [4423] * 4
        for rival in rivals:
            rival.writer.close()
        secret = scene.server.registry.admit("pi").connection.secret
        await last.upgrade()
        assert (await last.ask([HELLO, 2, "pi", b"", {}, False, secret]))[0] == WELCOME
        assert (await last.ask([PULL, None]))[0] == MODEL
        assert await there == 4409


@pytest.mark.usefixtures("never_spinning")
async def test_a_device_that_left_before_its_welcome_may_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with unchanged(tmp_path, caplog) as scene:
        scene.device.writer.transport.abort()
        for _ in range(5):
            async with connected(scene.server.port) as hasty:
                await hasty.upgrade()
                hasty.send(hello(device="pi"))
                hasty.writer.transport.abort()
        async with joined(scene.server.port, "pi") as (device, welcome):
            assert welcome[7:9] == [3, 5]
            assert (await device.ask([PULL, None]))[0] == MODEL


@pytest.mark.parametrize("message", [b"\xc1", update(sequence=6, base=9)])
async def test_a_device_that_does_not_wait_for_its_refusal(
    message: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with unchanged(tmp_path, caplog) as scene:
        scene.device.send(message)
        scene.device.writer.transport.abort()
        async with joined(scene.server.port, "pi") as (_, welcome):
            assert welcome[8] == 5
