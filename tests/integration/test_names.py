"""A device's name while it is here: nobody takes it without the secret that its Welcome gave it."""

import asyncio
from pathlib import Path

import pytest

from edgeflock.client.transport import dialing
from edgeflock.server.sessions import records
from edgeflock.shared.errors import NameInUse
from tests.hosting import hosting
from tests.integration.foreign_client import MODEL, PULL, WELCOME, Device, connected, joined
from tests.integration.scene import hello, refused
from tests.integration.test_reconnect import link, never_given_up, update
from tests.proxy import proxying


async def heard(device: Device) -> None:
    """Answer pings, as any device does, until something else comes."""
    await device.receive()


@pytest.mark.parametrize("secret", [b"", b"guessed", bytes(16)], ids=["none", "short", "another"])
async def test_nobody_takes_the_name_of_a_device_that_is_here(secret: bytes, tmp_path: Path) -> None:
    async with hosting(tmp_path) as server, joined(server.port, "pi") as (device, _):
        answering = asyncio.create_task(heard(device))
        async with connected(server.port) as stranger:
            await stranger.upgrade()
            stranger.send(hello(device="pi", secret=secret))
            await refused(stranger, "name-in-use")
        answering.cancel()
        await asyncio.wait([answering])
        assert (await device.ask([PULL, None]))[0] == MODEL
        assert server.registry.devices["pi"].connection.is_connected


@pytest.mark.parametrize("name", ["pi ", "pi\u200b", "p\u0456", "\u202eip", "a" * 201])
async def test_a_name_that_is_not_what_it_seems_is_refused(name: str, tmp_path: Path) -> None:
    async with hosting(tmp_path) as server, connected(server.port) as device:
        await device.upgrade()
        device.send(hello(device=name))
        await refused(device, "malformed")
        assert not server.registry.devices


async def test_a_name_that_reads_like_another_one_is_refused(tmp_path: Path) -> None:
    async with hosting(tmp_path) as server, joined(server.port, "pi"), connected(server.port) as device:
        await device.upgrade()
        device.send(hello(device="\u0440\u0456"))
        await refused(device, "name-in-use")
        assert server.registry.devices.keys() == {"pi"}


async def test_a_device_that_trains_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing meanwhile, no pings either, and sends some itself."""
    monkeypatch.setattr(dialing, "HEARTBEAT", 0.5)
    never_given_up(monkeypatch)
    async with hosting(tmp_path) as server, link(server.port) as device, link(server.port) as stranger:
        await device.join()
        with pytest.raises(NameInUse):
            await stranger.join()
        assert (await device.pull(None)).base is None


async def test_a_name_whose_session_has_ended_is_free(tmp_path: Path) -> None:
    async with hosting(tmp_path) as server:
        async with joined(server.port, "pi") as (_, first):
            pass
        async with joined(server.port, "pi") as (device, second):
            assert second[22] != first[22], "whoever was here before has no right to it any more"
            answering = asyncio.create_task(heard(device))
            async with connected(server.port) as earlier:
                await earlier.upgrade()
                earlier.send(hello(device="pi", secret=first[22]))
                await refused(earlier, "name-in-use")
            answering.cancel()


async def test_a_dead_line_keeps_no_device_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was restarted, and has no secret; of its old line nothing comes, not even the end."""
    usual = records.HEARTBEAT
    monkeypatch.setattr(records, "HEARTBEAT", 0.2)
    monkeypatch.setattr(records, "CLOSE_SECONDS", 0.05)
    async with hosting(tmp_path) as server, joined(server.port, "pi") as (dead, _):
        monkeypatch.setattr(records, "HEARTBEAT", usual)  # for whoever comes from now on
        async with joined(server.port, "pi") as (device, welcome):
            assert welcome[0] == WELCOME
            assert (await device.ask([PULL, None]))[0] == MODEL
        dead.writer.transport.abort()


async def test_a_device_whose_line_was_cut_is_back_at_once(tmp_path: Path) -> None:
    """Before the server has noticed: its secret opens the door, and nobody waits for a heartbeat."""
    async with hosting(tmp_path) as server, proxying(server.port) as proxy, link(proxy.port) as device:
        await device.join()
        await device.push(update(1, 0))
        line = server.registry.devices["pi"].connection.session
        # It knows of no line any more, the server of one.
        cut, device._dialer.session = device._dialer.session, None
        assert (await device.push(update(2, 1))).version == 2
        assert server.registry.devices["pi"].connection.session is not line
        assert cut is not None
        await cut.close()


async def test_each_device_has_a_secret_of_its_own(tmp_path: Path) -> None:
    async with hosting(tmp_path) as server:
        async with joined(server.port, "a") as (a, first), joined(server.port, "b") as (_, second):
            assert len({first[22], second[22]}) == 2
            answering = asyncio.create_task(heard(a))
            async with connected(server.port) as b_again:
                await b_again.upgrade()
                b_again.send(hello(device="a", secret=second[22]))
                await refused(b_again, "name-in-use")
            answering.cancel()
