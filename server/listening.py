"""Listening on a port, with doors before every connection and its bytes counted: a server, or a gateway."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from edgeflock.server.doors import Doors
from edgeflock.server.roster import Traffic


@asynccontextmanager
async def listening_on(
    app: web.Application,
    doors: Doors,
    traffic: Callable[[], Traffic],
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
) -> AsyncIterator[int]:
    """Serve `app` on host:port (0: any free one) while the context lasts. Yields the port."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2)
    await runner.setup()
    try:
        assert runner.server is not None, "set up just now"
        protocol = traffic().protocol(doors.protocol(runner.server))
        if tls is not None:
            protocol = doors.behind_tls(protocol, tls)
        server = await asyncio.get_running_loop().create_server(protocol, host, port, backlog=1024)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            doors.close()
    finally:
        await runner.cleanup()
