"""An operator at a server: HTTP requests, actions, and the feed."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from edgeflock.shared.protocol.feed import decode
from edgeflock.shared.protocol.frames import Frame

ADMIN = "secret of the admins"


class Operator:
    """Use `operating`."""

    def __init__(self, http: aiohttp.ClientSession, port: int, token: str) -> None:
        self.http = http
        self.url = f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def post(self, path: str, body: Any = None, octets: bytes | None = None) -> tuple[int, Any]:
        """(status, JSON) of an action."""
        data = {"data": octets} if octets is not None else {"json": body}
        async with self.http.post(self.url + path, headers=self.headers, **data) as response:
            return response.status, await response.json()

    async def get(self, path: str, headers: Mapping[str, str] = {}) -> tuple[int, str]:
        async with self.http.get(self.url + path, headers=self.headers | dict(headers)) as response:
            return response.status, await response.text()

    @asynccontextmanager
    async def feed(self, interval: float = 0.2) -> AsyncIterator["Frames"]:
        url = f"{self.url}/v1/feed?interval={interval}"
        async with self.http.ws_connect(url, headers=self.headers) as socket:
            yield Frames(socket)


class Frames:
    """The frames of a feed, as they come."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def next(self) -> Frame:
        message = await self.socket.receive()
        assert message.type is aiohttp.WSMsgType.BINARY, message
        return decode(message.data)


@asynccontextmanager
async def operating(port: int, token: str = ADMIN) -> AsyncIterator[Operator]:
    async with aiohttp.ClientSession() as http:
        yield Operator(http, port, token)
