"""A device that its owner lets pause: operators see why, others do not wait, and it goes on by itself."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from edgeflock.client.backends.torch import TorchBackend
from edgeflock.client.neighbour import pausing
from edgeflock.client.run import run_client
from edgeflock.shared.settings.client import ClientSettings
from tests.hosting import hosting
from tests.integration.operator import operating
from tests.integration.test_feed import until_told
from tests.integration.test_reconnect import link
from tests.integration.test_rounds import PATIENT, gathered, update

WHY = "by its owner: hot: 83 C"


async def test_operators_see_why_a_device_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeflock.server.roster.statistics._MIN_SILENCE", 3600.0)  # it is never idle
    async with hosting(tmp_path) as hosted, operating(hosted.port, "") as viewer, link(hosted.port) as device:
        await device.join()
        async with viewer.feed() as frames:
            await frames.next()
            assert hosted.hub.mark(0.0).up == 1
            await device.send_facts({"cpu": 3.0, "paused": "hot: 83 C"})
            await until_told(frames, "pi", state="paused", paused_because=WHY, cpu=3.0)
            assert hosted.hub.mark(0.0).up == 0, "it is connected, and does not train"
            _, text = await viewer.get("/v1/status")
            (reported,) = json.loads(text)["devices"]
            assert (reported["connected"], reported["paused_because"]) == (True, WHY)
            await device.send_facts({"cpu": 3.0, "paused": "hot: 81 C"})
            await until_told(frames, "pi", paused_because=WHY.replace("83", "81"))
            await device.send_facts({})
            await until_told(frames, "pi", state="training", paused_because=None)
            await device.send_facts({"paused": 7})
            await device.send_facts({"paused": "battery"})
            await until_told(frames, "pi", state="paused")
        events, _ = hosted.hub.events.list_from(0)
        of_it = [(event.kind, event.text) for event in events if event.kind in ("paused", "resumed")]
        assert of_it == [("paused", WHY), ("resumed", "by its owner"), ("paused", "by its owner: battery")]


async def test_one_that_left_while_it_paused_is_away(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted:
        async with link(hosted.port) as device:
            await device.join()
            await device.send_facts({"paused": "hot: 83 C"})
            while hosted.registry.devices["pi"].owner_pause is None:
                await asyncio.sleep(0.01)
        while hosted.registry.devices["pi"].connection.is_connected:
            await asyncio.sleep(0.01)
        assert hosted.registry.devices["pi"].owner_pause is None


async def test_a_round_does_not_wait_for_one_that_pauses(tmp_path: Path) -> None:
    async with hosting(tmp_path, *PATIENT) as hosted:
        async with link(hosted.port, "a") as a, link(hosted.port, "b") as b:
            await a.join()
            await b.join()
            waiting = asyncio.create_task(a.push(update(0)))
            await gathered(hosted, 1)
            await b.send_facts({"paused": "hot: 83 C"})
            assert (await waiting).version == 1
            # Once it goes on, it is waited for again.
            await b.send_facts({})
            while hosted.registry.devices["b"].owner_pause is not None:
                await asyncio.sleep(0.01)
            waiting = asyncio.create_task(a.push(update(1, 2)))
            await gathered(hosted, 1)
            await b.push(update(1))
            assert (await waiting).sequence == 2


async def test_a_client_pauses_for_a_file_and_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "_EVERY", 0.01)
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (60, 1, 8, 8), np.uint8), random.integers(0, 10, 60)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    module = "edgeflock.client.zoo:DigitsCNN"
    layout = TorchBackend(module, "cross_entropy").layout
    stop = tmp_path / "stop"
    stop.write_text("the sun is down")
    async with hosting(tmp_path / "run", f"model.module={module}", layout=layout) as hosted:
        settings = ClientSettings(
            server=hosted.url,
            name="pi",
            data=f"npz:{tmp_path}/data.npz",
            backend="torch",
            health=True,
            pause_on=[f"file:{stop}", "hot:off"],
        )
        client = asyncio.create_task(run_client(settings))
        for _ in range(2):
            while (
                device := hosted.registry.devices.get("pi")
            ) is None or device.owner_pause != "the sun is down":
                await asyncio.sleep(0.01)
            # At most the step that was under way.
            before = hosted.engine.published.version
            await asyncio.sleep(0.2)
            assert hosted.engine.published.version <= before + 1
            stop.unlink()
            while hosted.engine.published.version < before + 5:
                await asyncio.sleep(0.005)
            if before == 0:
                stop.write_text("the sun is down")
        assert not client.done()
        client.cancel()
        await asyncio.wait([client])
