"""The HTTP client of a device: without redirects, and with a rate limit."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from types import SimpleNamespace

import aiohttp

from edgeflock.client.transport.credentials import Credentials
from edgeflock.client.transport.rate_limit import RateLimitedConnector
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.shown import printable


@asynccontextmanager
async def open_http(
    credentials: Credentials, tls: ssl.SSLContext | bool, rate: float
) -> AsyncIterator[aiohttp.ClientSession]:
    """Open an HTTP session. `rate`: bytes per second in both directions. `credentials` read answers."""
    connector = None if rate == inf else RateLimitedConnector(rate, tls)
    traced = aiohttp.TraceConfig()
    traced.on_request_redirect.append(_refuse_redirect)
    traced.on_request_end.append(credentials.read)
    try:
        async with aiohttp.ClientSession(
            connector=connector or aiohttp.TCPConnector(ssl=tls),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=20),
            trace_configs=[traced],
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as http:
            yield http
    finally:
        if connector is not None:
            await connector.drain()


async def _refuse_redirect(
    session: aiohttp.ClientSession, context: SimpleNamespace, redirect: aiohttp.TraceRequestRedirectParams
) -> None:
    """Refuse redirects: a server could make devices send requests within their private network."""
    target = printable(redirect.response.headers.get("Location", ""))
    if not target:
        return
    raise ConfigError(
        f"{redirect.url} sends this device on to {target}: if that is the server, name it in client.server"
    )
