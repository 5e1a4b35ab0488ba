"""A device in JavaScript at a real server, over a real socket."""

import asyncio
from pathlib import Path

import edgeflock as ef
from tests.client.browser.node import needs_node, node_device

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
