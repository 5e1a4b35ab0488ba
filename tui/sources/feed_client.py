"""A server's HTTP interface as operators use it: requests, actions, and the feed over one WebSocket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from edgeflock.shared.errors import ConfigError, EdgeflockError, Malformed, Unauthorized, Unavailable
from edgeflock.shared.identity import pin_from_token, tls_for
from edgeflock.shared.protocol import feed
from edgeflock.shared.protocol.backoff import failure_reason, permanent_error
from edgeflock.shared.protocol.frames import DeviceRow, Mark, Point
from edgeflock.shared.protocol.shown import detail_of

LARGEST_FRAME = 1 << 26
"""Bytes. A row takes about 150."""

SECONDS = 20.0
"""The most seconds of a request."""

_ROLLBACK_SECONDS = 600.0
"""A rollback takes longer, because the server replays updates since a snapshot."""

_HEARTBEAT = 15.0
"""Seconds of silence before a ping. The monitor disconnects if half of it passes without an answer."""


class FeedClient:
    def __init__(self, url: str, token: str, interval: float = 1.0) -> None:
        """Raises ConfigError if `url` is not a valid URL."""
        try:
            self._base = URL(url if "://" in url else f"http://{url}")
            is_url = self._base.scheme in ("http", "https") and self._base.host
        except ValueError:
            is_url = False
        if not is_url:
            raise ConfigError(f"client.server {url!r} must be a URL such as http://192.0.2.1:8470")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = tls_for(self._base.scheme, self._base.host or "", pin_from_token(token), insecure=True)
        self.interval = interval

    @property
    def name(self) -> str:
        """The server's address, or the run's name on a server of several."""
        return self._base.name if "/v1/runs/" in self._base.path else self._base.authority

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield the payload of every frame of one connection.

        Raises EdgeflockError at its end, and ConfigError or Unauthorized if another connection cannot help.
        """
        url = self._url("/v1/feed").with_query(interval=f"{self.interval:g}")
        try:
            async with self._session() as http:
                async with asyncio.timeout(SECONDS):  # a server may hang
                    socket = await http.ws_connect(
                        url,
                        heartbeat=_HEARTBEAT,
                        max_msg_size=LARGEST_FRAME,
                        timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                    )
                async with socket:
                    async for message in socket:
                        if message.type is aiohttp.WSMsgType.ERROR:
                            break
                        if message.type is not aiohttp.WSMsgType.BINARY:
                            raise Malformed("the feed sends binary messages only")
                        yield message.data
                    error = socket.exception()
                    lost = f"the connection was lost: {failure_reason(self.name, error)}" if error else ""
                    raise EdgeflockError(lost or "the server ended the feed")
        except aiohttp.ClientResponseError as error:
            if error.status == Unauthorized.status:
                raise _refusal(error.status, "/v1/feed", b"") from error
            if error.status in (Unavailable.status, Unauthorized.status):
                # Its error has the reason, e.g. how far a standby is, or that there is no token.
                await self.request("GET", "/v1/status")
            cause = permanent_error(str(self._base), error, error.status)
            raise cause or _refusal(error.status, "/v1/feed", b"") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._failure(error) from error

    async def device(self, name: str) -> tuple[DeviceRow, tuple[Point, ...]]:
        """Return a device and its recent updates. Raises EdgeflockError."""
        return feed.device_history(await self.request("GET", f"/v1/devices/{quote(name, safe='')}"))

    async def history(self) -> tuple[Mark, ...]:
        """Return the run's history that the server keeps. Raises EdgeflockError."""
        return feed.history(await self.request("GET", "/v1/history"))

    async def pause(self, name: str, reason: str) -> str:
        await self._act(name, "pause", {"because": reason})
        return f"{name} is paused"

    async def resume(self, name: str) -> str:
        await self._act(name, "resume")
        return f"{name} is resumed"

    async def drop(self, name: str) -> str:
        await self._act(name, "drop")
        return f"{name} is dropped"

    async def pardon(self, name: str) -> str:
        pardoned = (await self._act(name, "pardon"))["pardoned"]
        return f"{name} begins anew" if pardoned else f"the defence knows nothing of {name}"

    async def set_learning_rate(self, value: float) -> str:
        await self.request("POST", "/v1/learning_rate", {"value": value})
        return f"the learning rate is {value:g}"

    async def checkpoint(self) -> str:
        await self.request("POST", "/v1/checkpoint", {})
        return "a checkpoint is written"

    async def roll_back(self, version: int) -> dict[str, Any]:
        """Roll back the model. Return {"of", "version"}: its source version and its new one."""
        answer = await self.request("POST", "/v1/rollback", {"version": version}, seconds=_ROLLBACK_SECONDS)
        if not isinstance(answer, dict):
            raise Malformed(f"{self.name} answers a rollback with {answer!r:.80}; is it an Edgeflock server?")
        return answer

    async def _act(self, device: str, action: str, body: dict[str, Any] | None = None) -> Any:
        return await self.request("POST", f"/v1/devices/{quote(device, safe='')}/{action}", body or {})

    async def request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, seconds: float | None = None
    ) -> Any:
        """Return the JSON that answers a request. Raises as `send` does, and Malformed if it is none."""
        async with self.send(method, path, json=body, seconds=seconds) as response:
            octets = await read_body(response)
        try:
            return json.loads(octets) if octets else None
        except (ValueError, RecursionError) as error:
            raise Malformed(f"{path} did not answer with JSON: {error}") from error

    @asynccontextmanager
    async def send(
        self, method: str, path: str, *, seconds: float | None = None, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield its good answer, whose body is not yet read. `options` are aiohttp's.

        Raises Unauthorized, ConfigError if another attempt cannot help, or EdgeflockError with the reason.
        """
        timeout = aiohttp.ClientTimeout(total=seconds or SECONDS)
        try:
            async with (
                self._session(timeout=timeout) as http,
                http.request(method, self._url(path), **options) as response,
            ):
                if not response.ok:
                    raise _refusal(response.status, path, await read_body(response))
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> EdgeflockError:
        url = str(self._base).rstrip("/")
        return permanent_error(url, error) or EdgeflockError(failure_reason(url, error))

    def _session(self, **options: Any) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self._tls)
        return aiohttp.ClientSession(headers=self._headers, connector=connector, **options)

    def _url(self, path: str) -> URL:
        return URL(f"{str(self._base).rstrip('/')}{path}", encoded=True)


async def read_body(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer, at most LARGEST_FRAME bytes. Raises EdgeflockError."""
    try:
        await response.content.readexactly(LARGEST_FRAME + 1)
    except asyncio.IncompleteReadError as whole:
        return whole.partial
    raise EdgeflockError(f"the server answers {response.url.path} with more than {LARGEST_FRAME} bytes")


def _refusal(status: int, path: str, body: bytes) -> EdgeflockError:
    """Return an error with the server's own reason, if there is one."""
    unknown = "the server does not know this token, or it has expired"
    missing = f"the server has no {path}; is it of this version? (404)"
    if path.startswith("/v1/runs"):
        missing = "the server has one run: edgeflock status shows it"
    tls = "the server speaks TLS: write https:// instead of http:// (426)"
    known = {401: unknown, 403: "this token may not (403)", 404: missing, 426: tls}
    detail = detail_of(body, known.get(status, f"no reason given ({status})"))
    if status != Unauthorized.status:
        return EdgeflockError(detail)
    # At a gateway no token helps.
    return Unauthorized(detail if "ask the leader" in detail else f"{detail} (client.token, --token-file)")
