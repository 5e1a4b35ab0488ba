"""A request to a server's HTTP, whose failures are errors that say what to do."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from edgeflock.shared.errors import ConfigError, EdgeflockError, Unauthorized
from edgeflock.shared.identity import pin_from_token, tls_for
from edgeflock.shared.protocol.shown import printable
from edgeflock.tui.sources import read_body

NOT_KNOWN = "the server does not know this token, or it has expired (client.token, --token-file)"


async def fetch(http: aiohttp.ClientSession, server: str, path: str, token: str) -> bytes:
    """Return the body of GET server/path. Raises as `send_request` does."""
    async with send_request(http, server, token, "GET", path) as response:
        return await read_body(response)


@asynccontextmanager
async def send_request(
    http: aiohttp.ClientSession, server: str, token: str, method: str, path: str, **options: Any
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send a request to the URL `server` and yield its answer of status 200, whose body is not yet read.

    `options` are those of aiohttp, such as json and params. Raises Unauthorized, ConfigError for no URL, or
    EdgeflockError with the server's own reason.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url, tls = f"{server.rstrip('/')}{path}", tls_of(server, token)
    try:
        async with http.request(method, url, headers=headers, ssl=tls, **options) as response:
            if response.status == Unauthorized.status:
                raise Unauthorized(NOT_KNOWN)
            if response.status != 200:
                raise EdgeflockError(_error_text(response, await read_body(response)))
            yield response
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"client.server {server!r} must be a URL such as http://192.0.2.1:8470") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise EdgeflockError(
            f"no answer from {server}: {str(error) or 'it says nothing'}; "
            "does it run, and is that its address?"
        ) from error


def tls_of(server: str, token: str) -> ssl.SSLContext | bool:
    """Return TLS settings with the key that the token names, if it names one."""
    url = urlsplit(server)
    return tls_for(url.scheme, url.hostname or "", pin_from_token(token), insecure=True)


def _error_text(response: aiohttp.ClientResponse, body: bytes) -> str:
    """Return the server's description of an error, or the HTTP status without one."""
    try:
        return printable(str(json.loads(body)["detail"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return printable(f"{response.url} answered {response.status} {response.reason}")
