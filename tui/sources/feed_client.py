"""A server's HTTP interface as a monitor uses it: the feed over one WebSocket, and the operators' actions."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from edgeflock.shared.errors import ConfigError, EdgeflockError, Malformed, Unauthorized, Unavailable
from edgeflock.shared.identity import pin_from_token, tls_for
from edgeflock.shared.protocol import feed
from edgeflock.shared.protocol.backoff import permanent_error
from edgeflock.shared.protocol.frames import DeviceRow, Mark, Point

LARGEST_FRAME = 1 << 26
"""Bytes. A row takes about 150."""

TIMEOUT = aiohttp.ClientTimeout(total=20)

_ROLLBACK_TIMEOUT = aiohttp.ClientTimeout(total=600)
"""A rollback takes longer, because the server replays updates since a snapshot."""

_HEARTBEAT = 15.0
"""Seconds of silence before a ping. The monitor disconnects if half of it passes without an answer."""


class FeedClient:
    """A client of one server."""

    def __init__(self, url: str, token: str, interval: float = 1.0) -> None:
        """Raises ConfigError if `url` is not a valid URL."""
        try:
            self._base = URL(url if "://" in url else f"http://{url}")
        except ValueError as error:
            raise ConfigError(f"server {url!r} must be a URL such as http://192.0.2.1:8470") from error
        if self._base.scheme not in ("http", "https") or not self._base.host:
            raise ConfigError(f"server {url!r} must be a URL such as http://192.0.2.1:8470")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = tls_for(self._base.scheme, self._base.host, pin_from_token(token), insecure=True)
        self.interval = interval

    @property
    def name(self) -> str:
        return self._base.authority

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield the payload of every frame of one connection.

        Raises EdgeflockError at its end, and ConfigError or Unauthorized if another connection cannot help.
        """
        url = self._url("/v1/feed").with_query(interval=f"{self.interval:g}")
        try:
            async with self._session() as http:
                async with asyncio.timeout(TIMEOUT.total):  # a server may hang
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
                    raise EdgeflockError(
                        f"the connection was lost: {_reason(error)}" if error else "the server ended the feed"
                    )
        except aiohttp.ClientResponseError as error:
            if error.status == Unauthorized.status:
                raise _refusal(error.status, "/v1/feed", "") from error
            if error.status == Unavailable.status:
                # Its error has the reason, e.g. how far a standby is.
                await self._request("GET", "/v1/status")
            cause = permanent_error(str(self._base), error, error.status)
            raise cause or _refusal(error.status, "/v1/feed", "") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise permanent_error(str(self._base), error) or EdgeflockError(_reason(error)) from error

    async def device(self, name: str) -> tuple[DeviceRow, tuple[Point, ...]]:
        """Return a device and its recent updates. Raises EdgeflockError."""
        return feed.device_history(await self._request("GET", f"/v1/devices/{quote(name, safe='')}"))

    async def history(self) -> tuple[Mark, ...]:
        """Return the run's history that the server keeps. Raises EdgeflockError."""
        return feed.history(await self._request("GET", "/v1/history"))

    async def pause(self, name: str, reason: str) -> str:
        await self._post(f"/v1/devices/{quote(name, safe='')}/pause", {"because": reason})
        return f"{name} is paused"

    async def resume(self, name: str) -> str:
        await self._post(f"/v1/devices/{quote(name, safe='')}/resume")
        return f"{name} is resumed"

    async def drop(self, name: str) -> str:
        await self._post(f"/v1/devices/{quote(name, safe='')}/drop")
        return f"{name} is dropped"

    async def pardon(self, name: str) -> str:
        pardoned = (await self._request("POST", f"/v1/devices/{quote(name, safe='')}/pardon", {}))["pardoned"]
        return f"{name} begins anew" if pardoned else f"the defence knows nothing of {name}"

    async def set_learning_rate(self, value: float) -> str:
        await self._post("/v1/learning_rate", {"value": value})
        return f"the learning rate is {value:g}"

    async def checkpoint(self) -> str:
        await self._post("/v1/checkpoint")
        return "a checkpoint is written"

    async def roll_back(self, version: int) -> str:
        done = await self._request("POST", "/v1/rollback", {"version": version}, _ROLLBACK_TIMEOUT)
        return f"rolled back to the model of version {done['of']:,}, which is now version {done['version']:,}"

    async def _post(self, path: str, body: dict[str, Any] | None = None) -> None:
        await self._request("POST", path, body or {})

    async def _request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        client_timeout: aiohttp.ClientTimeout = TIMEOUT,
    ) -> Any:
        try:
            async with self._session(timeout=client_timeout) as http:
                async with http.request(method, self._url(path), json=body) as response:
                    text = (await read_body(response)).decode()
                    if not response.ok:
                        raise _refusal(response.status, path, text)
                    return json.loads(text) if text else None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise permanent_error(str(self._base), error) or EdgeflockError(_reason(error)) from error
        except (ValueError, RecursionError) as error:
            raise Malformed(f"{path} did not answer with JSON: {error}") from error

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


def _refusal(status: int, path: str, text: str) -> EdgeflockError:
    """Return an error with the server's own reason, if there is one."""
    if status == Unauthorized.status:
        return Unauthorized("the server does not know this token, or it has expired: --token-file")
    try:
        answer = json.loads(text)
        detail = answer["detail"] if isinstance(answer, dict) and "detail" in answer else ""
    except (ValueError, RecursionError):
        detail = ""
    if not detail:
        detail = {
            403: "this token may not",
            404: f"the server has no {path}; is it of this version?",
        }.get(status, "no reason given")
    return EdgeflockError(f"{detail} ({status})")


def _reason(error: BaseException) -> str:
    """Return a readable reason for an error."""
    cause: BaseException = getattr(error, "os_error", None) or error
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    return str(getattr(cause, "strerror", None) or cause) or type(cause).__name__
