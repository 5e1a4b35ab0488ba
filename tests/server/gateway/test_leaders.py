"""What a gateway takes of its leader's HTTP: all of it, and no more than there can be."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from edgeflock.server.gateway import leaders
from edgeflock.server.gateway.leaders import Leaders
from edgeflock.shared.errors import Unavailable

GRAPH = bytes(range(256)) * 4096  # in many parts


@asynccontextmanager
async def leading(octets: bytes, status: int = 200) -> AsyncIterator[tuple[Leaders, aiohttp.ClientSession]]:
    """A leader that answers everything with this."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=octets, status=status, headers={"ETag": '"a"'})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession() as http:
            yield Leaders(f"http://127.0.0.1:{runner.addresses[0][1]}", ""), http
    finally:
        await runner.cleanup()


async def test_a_graph_is_whole_and_asked_for_once() -> None:
    async with leading(GRAPH) as (one, http):
        url = one.url / "v1/graphs/step"
        assert await one.fetch(http, url, fixed=True) == (200, {"ETag": '"a"'}, GRAPH)
    async with aiohttp.ClientSession() as http:  # nobody is there any more
        assert await one.fetch(http, url, fixed=True) == (200, {"ETag": '"a"'}, GRAPH)


async def test_no_graph_is_larger_than_there_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "_LONGEST_FILE", len(GRAPH) - 1)
    async with leading(GRAPH) as (one, http):
        with pytest.raises(Unavailable, match="more than"):
            await one.fetch(http, one.url / "v1/graphs/step", fixed=True)


@pytest.mark.parametrize(
    "octets", [b"[" * 60_000, b"{}", b"7", b'{"detail": ' + b"1" * 70_000, b'{"detail": "\x1b[2J"}']
)
async def test_whatever_a_leader_says_is_wrong_is_one_line(octets: bytes) -> None:
    async with leading(octets, 404) as (one, http):
        error = aiohttp.WSServerHandshakeError(None, (), status=404)  # type: ignore[arg-type]
        hopeless = await one.diagnose(http, one.url / "v1/gateway", error)
        assert hopeless is not None
        reported = str(hopeless)
        assert len(reported) < 400
        assert reported.isprintable()


async def test_a_file_may_take_as_long_as_its_line_needs() -> None:
    """As a base of many megabytes on a slow uplink."""
    parts = 10

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"ETag": '"a"'})
        await response.prepare(request)
        for _ in range(parts):
            await response.write(GRAPH)
            await asyncio.sleep(0.05)
        return response

    app = web.Application()
    app.router.add_get("/v1/base", answer)
    of_sessions = aiohttp.ClientTimeout(total=0.1)  # as aiohttp's own of 5 minutes
    async with TestServer(app) as server, aiohttp.ClientSession(timeout=of_sessions) as http:
        one = Leaders(str(server.make_url("/")), "")
        assert (await one.fetch(http, one.url / "v1/base", fixed=True))[2] == parts * GRAPH
