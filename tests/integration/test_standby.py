"""A server that stands by, and devices that look for the one that leads."""

from pathlib import Path
from random import Random

import aiohttp
import pytest

from edgeflock.client.identity import urls_of
from edgeflock.client.transport import Link
from edgeflock.client.transport.credentials import join
from edgeflock.operations.status import roll_back, status
from edgeflock.server.hosting.standby import Standby, StandbyStopped, serve_standby
from edgeflock.shared.errors import ConfigError, EdgeflockError, Unauthorized
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from edgeflock.shared.settings.config import Config, parse
from edgeflock.tui.sources.feed_client import FeedClient
from tests.hosting import LAYOUT, hosting
from tests.ports import lasting


def waiting() -> Config:
    return parse(overrides=[f"server.port={lasting()}", "server.host=127.0.0.1"])


async def at_once(seconds: float) -> None:
    """Nothing is waited for."""


async def test_a_standby_says_so_to_everybody() -> None:
    config, standby = waiting(), Standby()
    standby.reason = "other:8470 hosts the run"
    async with serve_standby(config, None, standby), aiohttp.ClientSession() as http:
        for path in ("readyz", "v1/status", "v1/session"):
            async with http.get(f"http://127.0.0.1:{config.server.port}/{path}") as answer:
                assert answer.status == 503
                reported = await answer.json()
            assert reported == {
                "code": "unavailable",
                "detail": "this server stands by: other:8470 hosts the run",
            }
        async with http.get(f"http://127.0.0.1:{config.server.port}/livez") as answer:
            assert answer.status == 200


async def test_commands_say_why_a_standby_does_not_answer() -> None:
    config, standby = waiting(), Standby()
    standby.reason = "other:8470 hosts the run"
    url = f"http://127.0.0.1:{config.server.port}"
    async with serve_standby(config, None, standby):
        with pytest.raises(EdgeflockError, match="^this server stands by: other:8470 hosts the run$"):
            await status(url)
        with pytest.raises(EdgeflockError, match="^this server stands by: other:8470 hosts the run$"):
            await roll_back(url, "", 1)


async def test_prometheus_learns_how_far_a_standby_follows() -> None:
    config, standby = waiting(), Standby()
    async with serve_standby(config, None, standby), aiohttp.ClientSession() as http:
        reported = []
        for version in (None, 41):
            standby.version = version
            async with http.get(f"http://127.0.0.1:{config.server.port}/metrics") as answer:
                text = await answer.text()
            reported.append([line for line in text.splitlines() if not line.startswith("#")])
    assert reported == [["edgeflock_leads 0"], ["edgeflock_leads 0", "edgeflock_standby_version 41"]]


async def test_a_monitor_of_a_standby_says_how_far_it_follows() -> None:
    config, standby = waiting(), Standby()
    standby.reason, standby.version = "other:8470 hosts the run", 12_345
    client = FeedClient(f"http://127.0.0.1:{config.server.port}", "")
    async with serve_standby(config, None, standby):
        with pytest.raises(EdgeflockError, match="hosts the run; it follows up to version 12,345"):
            await anext(client.frames())


async def test_a_device_finds_the_server_that_leads(tmp_path: Path) -> None:
    config = waiting()
    async with hosting(tmp_path) as leader, serve_standby(config, None, Standby()):
        servers = f"http://127.0.0.1:1, http://127.0.0.1:{config.server.port},{leader.url}"
        hello = Hello(PROTOCOL, "device", LAYOUT.digest, {})
        async with Link(servers, None, hello, Random(0), at_once) as link:
            assert (await link.join()).version == 0
        assert "device" in leader.registry.devices


async def test_a_device_joins_at_the_server_that_leads(tmp_path: Path) -> None:
    config = waiting()
    async with hosting(tmp_path, closed=True) as leader, serve_standby(config, None, Standby()):
        token = leader.register.create("device").text
        servers = f"http://127.0.0.1:{config.server.port},{leader.url}"
        identity = await join(servers, token, "device")
        assert [str(url) for url in urls_of(identity.server)] == [str(url) for url in urls_of(servers)]
        with pytest.raises(Unauthorized):  # whoever leads has the word
            await join(f"{leader.url},http://127.0.0.1:{config.server.port}", token, "another")


async def test_nobody_is_told_where_the_journal_lies(tmp_path: Path) -> None:
    """It may have a password."""
    place = f"journal.url=sqlite:{tmp_path / 'run' / 'journal.sqlite'}"
    async with hosting(tmp_path / "run", place) as hosted, aiohttp.ClientSession() as http:
        async with http.ws_connect(f"{hosted.url}/v1/feed") as feed:
            assert b"journal.sqlite" not in (await feed.receive_bytes())


def test_several_servers_are_all_behind_tls_or_none() -> None:
    with pytest.raises(ConfigError, match="must be all https:// or all http://"):
        urls_of("https://192.0.2.1:8470,http://192.0.2.2:8470")


def test_who_stands_by_can_be_told_to_go() -> None:
    standby = Standby()
    standby.stop()
    with pytest.raises(StandbyStopped):
        standby.wait("other:8470 hosts the run")
