"""A server's HTTP interface as the monitor asks it."""

import socket

import pytest

from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.protocol.frames import Frame, Point
from edgeflock.tui.sources import feed_client
from edgeflock.tui.sources.feed_client import FeedClient
from edgeflock.tui.sources.state import reduce
from tests.ports import lasting
from tests.tui.runs import BEGAN, frames
from tests.tui.server import serving

FRAMES: list[Frame] = list(frames(4, 30))


async def test_actions_and_their_refusals() -> None:
    async with serving(token="admin", port=lasting()) as server:
        client = FeedClient(server.url, "admin")
        await client.pause("pi/1 ü", "too hot")
        await client.resume("pi-1")
        await client.drop("pi-1")
        await client.set_learning_rate(0.05)
        await client.checkpoint()
        assert server.acts == [
            ("/v1/devices/pi/1 ü/pause", {"because": "too hot"}),
            ("/v1/devices/pi-1/resume", {}),
            ("/v1/devices/pi-1/drop", {}),
            ("/v1/learning_rate", {"value": 0.05}),
            ("/v1/checkpoint", {}),
        ]
        server.refusal = (403, "only an admin may do this")
        with pytest.raises(EdgeflockError, match="only an admin may do this"):
            await client.checkpoint()
        with pytest.raises(EdgeflockError, match=r"send the token \(client.token, --token-file\)"):
            await FeedClient(server.url, "wrong").checkpoint()
    with pytest.raises(EdgeflockError, match="^nothing listens at http:"):
        await client.checkpoint()


async def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes the connection for it, and nobody answers."""
    monkeypatch.setattr(feed_client, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as hung:
        client = FeedClient(f"http://127.0.0.1:{hung.getsockname()[1]}", "")
        with pytest.raises(EdgeflockError, match="no answer in time"):
            await anext(client.frames())


async def test_no_answer_is_longer_than_there_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(FRAMES[0]) as server:
        server.refusal = (403, "no" * 1000)
        with pytest.raises(EdgeflockError, match="nono"):
            await FeedClient(server.url, "").checkpoint()
        monkeypatch.setattr(feed_client, "LARGEST_FRAME", 1000)
        with pytest.raises(EdgeflockError, match="with more than 1000 bytes"):
            await FeedClient(server.url, "").checkpoint()


async def test_the_history_of_a_device() -> None:
    state = reduce(None, FRAMES[0])
    row = state.devices[1]
    async with serving(FRAMES[0]) as server:
        server.history = (row, [Point(BEGAN, 0.5, 3, 900)])
        assert await FeedClient(server.url, "").device(row.name) == (row, (Point(BEGAN, 0.5, 3, 900),))
        with pytest.raises(EdgeflockError, match="no such device"):
            await FeedClient(server.url, "").device("nobody")


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ConfigError, match=r"must be a URL such as http://192\.0\.2\.1:8470"):
        FeedClient(url, "")
