"""What a device loads over plain HTTP, beside its session: the run's graphs, and the first model.

The server is believed no more than in the session (session.py): nothing is read beyond what a graph or the
announced first model can need.
"""

import json
import logging
from collections.abc import Callable, Mapping

import aiohttp
from yarl import URL

from edgeflock.client.first_model import CachedFirstModel
from edgeflock.client.transport.liveness import Liveness
from edgeflock.client.transport.retrying import ANSWER_SECONDS, Retries
from edgeflock.shared.errors import ConfigError, ServerAtFault, Unauthorized
from edgeflock.shared.protocol.backoff import may_pass
from edgeflock.shared.protocol.shown import shown

log = logging.getLogger(__name__)

NOT_KNOWN = (
    "the server does not let this device in: it has not joined, or was revoked; "
    "edgeflock client join URL TOKEN, with a token of who runs the server"
)

SILENT_SECONDS = 60.0
"""The longest wait for the next bytes of a first model."""

LONGEST_GRAPH = 1 << 24
"""Bytes, decompressed."""

_LONGEST_DETAIL = 1 << 16
"""Bytes of what a server says when it gives no graph."""

_GRAPH_SECONDS = 1800.0
"""The longest wait for all of a graph, making it included."""


class Downloads:
    """Those of one device from one server, each tried again until it is there."""

    def __init__(
        self, server: Callable[[], URL], headers: Mapping[str, str], device: str, retries: Retries
    ) -> None:
        """`server` says whom to ask now."""
        self._server, self._headers, self._device, self._retries = server, headers, device, retries
        self._graphs: dict[str, tuple[str, bytes]] = {}
        """kind -> (ETag, graph)."""

    async def graph(self, http: aiohttp.ClientSession, kind: str, liveness: Liveness) -> bytes:
        """The run's "step" or "evaluation" as an ONNX graph; one that has not changed is not sent again.

        The server makes it when it is first asked, which may take minutes. Raises ConfigError if it has none,
        ServerAtFault if it is longer than LONGEST_GRAPH, Unauthorized if the credential is not known.
        """
        log.info("waiting for the run's %s as a graph, which the server may have to make first", kind)
        return await self._retries.until_answered(lambda: liveness.during(self._get_graph(http, kind)))

    async def load(self, http: aiohttp.ClientSession, kept: CachedFirstModel, liveness: Liveness) -> bool:
        """Bring what is missing of a first model; False if the server has it no longer, or has another.

        After a line that dropped it goes on where that broke off. Raises Malformed if something else comes
        than was announced, ConfigError if `kept` cannot keep it, Unauthorized if the credential is not known.
        """
        found = True
        while found and kept.missing:
            before = kept.size
            found = await self._retries.until_answered(lambda: liveness.during(self._load(http, kept)))
            if found and kept.missing:
                log.warning("the line dropped after %d bytes of the first model", kept.size - before)
                await self._retries.pause()
        return found

    async def _get_graph(self, http: aiohttp.ClientSession, kind: str) -> bytes:
        url = self._server() / "v1/graphs" / kind
        etag, graph = self._graphs.get(kind, ("", b""))
        headers = {**self._headers, **({"If-None-Match": etag} if etag else {})}
        timeout = aiohttp.ClientTimeout(total=_GRAPH_SECONDS, sock_connect=20, sock_read=ANSWER_SECONDS)
        async with http.get(url, headers=headers, timeout=timeout) as response:
            if response.status == 304:
                return graph
            if response.status == Unauthorized.status:
                raise Unauthorized(NOT_KNOWN)
            if not response.ok and not may_pass(response.status):
                raise ConfigError(f"{url} gives no graph: {await _detail(response)}")
            response.raise_for_status()
            graph = await _read(response, LONGEST_GRAPH)
            self._graphs[kind] = response.headers.get("ETag", ""), graph
            return graph

    async def _load(self, http: aiohttp.ClientSession, kept: CachedFirstModel) -> bool:
        """As much as comes before the line drops. Raises what a line raises only if that is nothing."""
        url, before = self._server() / "v1/start" % {"device": self._device}, kept.size
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=SILENT_SECONDS)
        try:
            async with http.get(url, headers={**self._headers, **kept.asking}, timeout=timeout) as response:
                if response.status == Unauthorized.status:
                    raise Unauthorized(NOT_KNOWN)
                if response.status == 404:
                    return False
                response.raise_for_status()
                if not kept.begin(response.headers):
                    return False
                async for octets in response.content.iter_any():
                    kept.add(octets)
        except (OSError, aiohttp.ClientError, TimeoutError):
            if kept.size <= before:
                raise
        return True


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body. Raises ServerAtFault if it is longer than `most`, of which no more is read."""
    body = bytearray()
    async for part in response.content.iter_chunked(1 << 16):
        body += part
        if len(body) > most:
            raise ServerAtFault(f"{response.url.path} answered with more than {most} bytes")
    return bytes(body)


async def _detail(response: aiohttp.ClientResponse) -> str:
    """What the server says is wrong, or the status if it does not say."""
    try:
        return shown(str(json.loads(await _read(response, _LONGEST_DETAIL))["detail"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return shown(f"{response.status} {response.reason}")
