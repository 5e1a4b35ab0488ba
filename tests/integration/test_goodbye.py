"""Why a device left, in the server's log and among its events; and what it does not tell."""

import asyncio
import logging
from itertools import repeat
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from edgeflock.client.run import process, run_client
from edgeflock.client.run.building import Building
from edgeflock.client.run.choosing import ClientObjects
from edgeflock.client.training import Trainer, attempts
from edgeflock.client.transport.credentials import join
from edgeflock.shared.errors import ConfigError, EdgeflockError, NameInUse, TrainingFailed
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol.messages import Welcome
from edgeflock.shared.settings.client import ClientSettings
from edgeflock.tui.sources.feed_client import FeedClient
from tests.hosting import Hosted, hosting
from tests.integration.foreign_client import GOODBYE, connected, joined, pack
from tests.integration.test_reconnect import link


async def reported(hosted: Hosted, kind: str) -> str:
    """The text of the first event of a kind, once there is one."""
    while True:
        events, _ = hosted.hub.events.list_from(0)
        if found := [event.text for event in events if event.kind == kind]:
            return found[0]
        await asyncio.sleep(0.01)


async def test_a_device_that_leaves_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "edgeflock.server"):
        async with hosting(tmp_path) as hosted:
            async with link(hosted.port) as device:
                await device.join()
                await device.leave("the battery\nis empty" + "!" * 1000)
            left = await reported(hosted, "left")
    assert left.startswith("retired: the battery")
    assert len(left) <= 350
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("joined pi: at version 0") for line in lines)
    assert f"left pi: {left}" in lines


async def test_one_that_is_to_begin_a_new_session_is_there_and_says_why_it_leaves(tmp_path: Path) -> None:
    """As when its data turn out not to fit while the server makes the graph that it waits for."""
    async with hosting(tmp_path) as hosted:
        async with link(hosted.port) as device:
            await device.join()
            await device.introduce({"cores": 4})
            await device.leave("error: it does not fit")
        assert await reported(hosted, "left") == "error: it does not fit"


async def test_reasons_that_are_none_are_malformed(tmp_path: Path) -> None:
    for reason in (7, "x" * 301):
        async with hosting(tmp_path) as hosted, joined(hosted.port, "pi") as (device, _):
            device.send(pack([GOODBYE, reason]))
            assert (await reported(hosted, "refused")).startswith("malformed: Goodbye.reason must be text")


@pytest.mark.parametrize("ends", ["cancelled", "unfit"])
async def test_what_ends_a_client_is_told_without_its_data(
    tmp_path: Path, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CLOSING_SECONDS", 300.0)
    np.savez(
        tmp_path / "d.npz", x_train=np.full((4, 3), 123456, np.float32), y_train=np.array(["secret"] * 4)
    )
    data = "digits:" if ends == "cancelled" else f"npz:{tmp_path}/d.npz"
    if ends == "cancelled":  # before it has seen that this run is of another model than it says

        async def never(building: Building, welcome: Welcome) -> NoReturn:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        monkeypatch.setattr(Building, "trainer", never)
    async with hosting(tmp_path / "run", "model.module=edgeflock.client.zoo:DigitsCNN") as hosted:
        settings = ClientSettings(server=hosted.url, name="pi", data=data, backend="torch", health=False)
        client = asyncio.create_task(run_client(settings))
        if ends == "cancelled":
            await reported(hosted, "joined")
            client.cancel()
        with pytest.raises((asyncio.CancelledError, ConfigError)):
            await client
        left = await reported(hosted, "left")
    assert "secret" not in left
    assert "123456" not in left
    why = {
        "cancelled": "retired: stopped by its owner",
        "unfit": "error: its settings or its data do not fit the run; its log has the reason",
    }
    assert left == why[ends]


async def test_a_device_whose_steps_fail_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that its settings do not fit; and nothing of what the error says, which may be of its data."""
    monkeypatch.setattr(attempts, "back_off", lambda random: repeat(0.0))
    computed: list[int] = []

    def gradient(*_: object) -> NoReturn:
        computed.append(1)
        raise MemoryError("no room for sample 123456")

    original = Building.trainer

    async def failing(building: Building, welcome: Welcome) -> Trainer:
        trainer = await original(building, welcome)
        monkeypatch.setattr(trainer._backend, "gradient", gradient)
        return trainer

    monkeypatch.setattr(Building, "trainer", failing)
    module = "edgeflock.client.zoo:DigitsCNN"
    layout = FlatModule(module, "cross_entropy").layout
    async with hosting(tmp_path / "run", f"model.module={module}", layout=layout) as hosted:
        settings = ClientSettings(server=hosted.url, name="pi", backend="torch", health=False)
        with pytest.raises(TrainingFailed, match="5 steps in a row failed: MemoryError: no room for sample"):
            await run_client(settings)
        left = await reported(hosted, "left")
    assert left == "error: 5 steps in a row failed, the last one with MemoryError; its log has the reason"
    assert len(computed) == attempts.MAX_FAILURES


async def test_two_devices_of_one_name_are_told_what_to_do(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        hosted.enrol("raspberrypi")
        token = hosted.register.create("device").text
        with pytest.raises(NameInUse, match="with the name raspberrypi joined; give each its own --name"):
            await join(hosted.url, token, "raspberrypi")


async def test_tls_to_a_port_that_speaks_none_is_named(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        token = hosted.register.create("device").text
        with pytest.raises(ConfigError, match="speaks no TLS: write http:// instead of https://"):
            await join(hosted.url.replace("http:", "https:"), token, "pi")


async def test_plain_http_to_a_port_that_speaks_tls_is_named(tmp_path: Path) -> None:
    """Of a device, which would try again for ever, of a monitor, and of whatever else asks."""
    async with hosting(tmp_path, "model.module=edgeflock.client.zoo:DigitsCNN", with_tls=True) as hosted:
        url = f"http://127.0.0.1:{hosted.port}"
        settings = ClientSettings(server=url, name="pi", backend="torch", health=False)
        with pytest.raises(ConfigError, match="speaks TLS: write https:// instead of http://"):
            await run_client(settings)
        with pytest.raises(ConfigError, match="speaks TLS: write https:// instead of http://"):
            await anext(FeedClient(url, "").frames())
        with pytest.raises(EdgeflockError, match="speaks TLS: write https:// instead of http://"):
            await FeedClient(url, "").request("GET", "/v1/status")
        async with connected(hosted.port) as anybody:
            anybody.writer.write(b"GET / HTTP/1.1\r\nHost: server.example\r\n\r\n")
            said = await anybody.reader.read()
        assert said.startswith(b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.2, HTTP/1.1\r\n")
        assert said.endswith(b"\r\n\r\nthis port speaks TLS: write https:// instead of http://")


async def test_a_device_gives_way_once_it_has_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of the lowest priority takes minutes to join on a busy machine."""
    module = "edgeflock.client.zoo:DigitsCNN"
    layout = FlatModule(module, "cross_entropy").layout
    seen: list[bool] = []
    async with hosting(tmp_path / "run", f"model.module={module}", layout=layout) as hosted:
        device = hosted.registry.devices.get

        def lower_priority() -> None:
            seen.append(device("pi") is not None)

        monkeypatch.setattr(process, "lower_priority", lower_priority)
        settings = ClientSettings(server=hosted.url, name="pi", backend="torch", health=False)
        client = asyncio.create_task(run_client(settings, objects=ClientObjects(gentle=True)))
        while not hosted.engine.parameters.version:
            await asyncio.sleep(0.01)
        client.cancel()
        with pytest.raises(asyncio.CancelledError):
            await client
    assert seen == [True]
