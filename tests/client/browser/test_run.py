"""A device in JavaScript at a real server, over a real socket."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import edgeflock as ef
from tests.client.browser.node import MODULES, NODE, needs_node, node_device, write_digits
from tests.client.browser.test_page import devices

pytestmark = needs_node

MODEL = "edgeflock.client.zoo:DigitsCNN"


async def test_it_joins_and_its_updates_count(tmp_path: Path) -> None:
    """With a token and a key of its own; the same key lets it in again."""
    async with ef.Server(MODEL, directory=tmp_path / "run", evaluate="digits:", updates=30) as server:
        async with node_device(tmp_path / "device", server.url, token=server.token, name="tab") as device:
            assert (await device.until("terms"))["parameters"] == 38282
            step = await device.until("step", updates=2)
            assert step["sent"] < step["received"] < 100_000
            await device.do("stop")
            assert await device.ended() == {
                "kind": "ended",
                "why": "stopped",
                "reason": "stopped by its owner",
            }
        assert 2 <= server.version < 30
        async with node_device(tmp_path / "device", server.url) as again:
            ended = await again.ended()
            assert (ended["why"], ended["reason"]) == ("over", "the run is over: it has its 30 updates")
        assert (await server.until()).version == 30


@pytest.mark.slow
async def test_with_a_device_in_python_it_learns_the_digits(tmp_path: Path) -> None:
    async with ef.Server(MODEL, directory=tmp_path / "run", evaluate="digits:", updates=600) as server:
        async with node_device(tmp_path / "device", server.url, token=server.token) as device:
            await device.until("step", updates=50)
            python = ef.Client(server.url, token=server.token, data="digits:", backend="torch", health=False)
            training = asyncio.create_task(python.run())
            assert (await device.ended())["why"] == "over"
            progress = await training
            result = await server.until()
        assert progress.updates > 0
        assert result.accuracy is not None
        assert result.accuracy > 0.9


async def test_what_was_not_sent_outlasts_a_restart(tmp_path: Path) -> None:
    """It is stopped between the storage of an update and its push: it is sent once, by the next start."""
    assert NODE is not None
    write_digits(tmp_path)
    script = Path(__file__).with_name("restart.mjs")
    async with ef.Server(MODEL, directory=tmp_path / "run", evaluate="digits:", updates=1000) as server:
        process = await asyncio.create_subprocess_exec(
            *(NODE, str(script), str(MODULES), str(tmp_path), server.url, server.token),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        reported = json.loads(out)
        # The last one of each start is stored and not sent; that of the first is sent by the second.
        assert reported["sequences"] == [1, 2, 3, 4, 5, 6, 7]
        assert reported["receipts"] == [3, 2]
        assert server.version == 6


async def test_a_credential_in_the_first_frame(tmp_path: Path) -> None:
    """As a browser shows it, which cannot set a header."""
    async with ef.Server(MODEL, directory=tmp_path / "run", evaluate="digits:", updates=3) as server:
        async with node_device(tmp_path / "device", server.url, token=server.token, native=True) as device:
            assert (await device.ended())["why"] == "over"
        assert server.version == 3
        async with node_device(tmp_path / "other", server.url, native=True, patience=0.5) as stranger:
            ended = await stranger.ended()
            assert ended["why"] == "failed"
            assert "this device has no token" in ended["reason"]


async def test_a_server_that_was_set_up_anew_lets_it_in_by_a_new_token(tmp_path: Path) -> None:
    """The identity that the device has kept is of the server before, at the same address."""
    device = tmp_path / "device"
    async with ef.Server(MODEL, directory=tmp_path / "run", evaluate="digits:", updates=2) as server:
        port = int(server.url.rpartition(":")[2])
        async with node_device(device, server.url, token=server.token) as first:
            assert (await first.ended())["why"] == "over"
    async with ef.Server(
        MODEL, directory=tmp_path / "another", port=port, evaluate="digits:", updates=2
    ) as server:
        async with node_device(device, server.url) as unknown:
            ended = await unknown.ended()
            assert (ended["why"], ended["reason"].partition(":")[0]) == ("refused", "unauthorized")
        async with node_device(device, server.url, token=server.token) as again:
            assert (await again.ended())["why"] == "over"
        assert server.version == 2


async def test_a_pause_that_no_session_carried_is_told_by_the_next(tmp_path: Path) -> None:
    run: Any = {"directory": tmp_path / "run", "evaluate": "digits:", "updates": 1000}
    async with AsyncExitStack() as stack:
        async with ef.Server(MODEL, **run) as server:
            port = int(server.url.rpartition(":")[2])
            device = await stack.enter_async_context(
                node_device(tmp_path / "device", server.url, token=server.token)
            )
            await device.until("step", updates=2)
        await device.until("state", state="connecting")
        await device.do("pause hot")
        await asyncio.sleep(0.5)
        async with ef.Server(MODEL, port=port, **run) as again, asyncio.timeout(30):
            while [one.owner_pause for one in devices(again)] != ["hot"]:
                await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_its_personal_layers_learn_and_stay(tmp_path: Path) -> None:
    """The last layer is the device's own: no update has it, and a restart goes on with it."""
    model = ef.Model(MODEL, personal=["layers.8.*"])
    async with ef.Server(model, directory=tmp_path / "run", evaluate="digits:", updates=150) as server:
        async with node_device(tmp_path / "device", server.url, token=server.token) as device:
            assert (await device.until("terms"))["parameters"] < 38282, "those that it shares"
            first = (await device.until("step"))["loss"]
            await device.until("step", updates=100)
            await device.do("stop")
            await device.ended()
        async with node_device(tmp_path / "device", server.url) as again:
            losses = [(await again.until("step"))["loss"] for _ in range(5)]
            assert sum(losses) / 5 < 0.8 * first, "it has not begun anew"
            assert (await again.ended())["why"] == "over"
        assert (await server.until()).version == 150
