"""An HTTP server that is no Edgeflock server, or none in its right mind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ssl import SSLContext

from aiohttp import web


@asynccontextmanager
async def answering(status: int, tls: SSLContext | None = None, port: int = 0) -> AsyncIterator[int]:
    """The port of a server that answers everything with `status`."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
