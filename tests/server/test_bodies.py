"""Bodies of answers, over real sockets."""

import asyncio
import hashlib
import tracemalloc
from io import BytesIO

import aiohttp
import pytest
from aiohttp import web

from edgeflock.server.connections import ConnectionLimits, Traffic
from edgeflock.server.connections.listening import listen_on
from edgeflock.server.http.bodies import send_file
from edgeflock.shared.settings.limits import LimitSettings

WHOLE = bytes(range(256)) * (1 << 17)
"""32 MiB, more than a socket's buffers."""


async def test_parts_for_readers_that_do_not_read_are_not_copied() -> None:
    digest, sending = hashlib.sha256(WHOLE).hexdigest(), asyncio.Semaphore(0)

    async def answer(request: web.Request) -> web.StreamResponse:
        sending.release()
        return await send_file(request, BytesIO(WHOLE), digest, len(WHOLE))

    app = web.Application()
    app.router.add_get("/base", answer)
    traffic, limits = Traffic(), ConnectionLimits(LimitSettings())
    async with listen_on(app, limits, lambda: traffic, "127.0.0.1", 0, None) as port:
        tracemalloc.start()
        try:
            writers = []
            for _ in range(8):
                _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
                writers.append(writer)
                writer.write(b"GET /base HTTP/1.1\r\nHost: x\r\nRange: bytes=1-%d\r\n\r\n" % (len(WHOLE) - 2))
                await sending.acquire()
            before = -1
            while before != traffic.total.egress:  # until all wait
                before = traffic.total.egress
                await asyncio.sleep(0.1)
            assert 0 < before < 8 * len(WHOLE)
            assert tracemalloc.get_traced_memory()[1] < len(WHOLE)
        finally:
            tracemalloc.stop()
            for writer in writers:
                writer.transport.abort()
        async with aiohttp.ClientSession() as http:
            url, ranged = f"http://127.0.0.1:{port}/base", {"Range": f"bytes=5-{len(WHOLE) - 3}"}
            async with http.get(url, headers=ranged) as part:
                assert (part.status, await part.read()) == (206, WHOLE[5:-2])
            async with http.get(url) as whole:
                assert (whole.status, await whole.read()) == (200, WHOLE)
                assert whole.headers["ETag"] == f'"{digest}"'
            async with http.head(url) as head:
                assert (head.content_length, await head.read()) == (len(WHOLE), b"")


async def test_what_is_no_http_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: web.Request) -> web.StreamResponse:
        raise RuntimeError("a mistake of the server")

    app, traffic = web.Application(), Traffic()
    app.router.add_get("/fail", fail)
    async with listen_on(
        app, ConnectionLimits(LimitSettings()), lambda: traffic, "127.0.0.1", 0, None
    ) as port:
        for octets in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(octets)
            assert b" 400 Bad Request" in await reader.readline()
            writer.close()
        assert not caplog.records
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/fail") as answer:
            assert answer.status == 500
        assert "a mistake of the server" in caplog.text
