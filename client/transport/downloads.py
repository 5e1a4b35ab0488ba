"""Downloads over plain HTTP, outside the session: the run's graphs, its first model, and its base.

The server is not trusted, as in the session (session.py): at most the size limit of a graph or the announced
size of a file is read.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

import aiohttp
from yarl import URL

from edgeflock.client.transport.cached_file import CachedFile
from edgeflock.client.transport.dialing import NOT_JOINED, Dialer
from edgeflock.client.transport.retrying import ANSWER_SECONDS, Retries
from edgeflock.shared.errors import ConfigError, ServerAtFault, Unauthorized
from edgeflock.shared.protocol.backoff import is_transient
from edgeflock.shared.protocol.shown import detail_of

log = logging.getLogger(__name__)

SILENT_SECONDS = 60.0
"""The longest wait for the next bytes of a file."""

LONGEST_GRAPH = 1 << 24
"""Bytes, decompressed."""

_LONGEST_DETAIL = 1 << 16
"""Largest error answer of a server, in bytes."""

_GRAPH_SECONDS = 1800.0
"""The longest wait for a whole graph, including its export by the server."""


class DownloadedModel(NamedTuple):
    """A run's model as a file."""

    etag: str
    octets: bytes


class Downloads:
    """The downloads of one device from the dialer's server, retried until they succeed."""

    def __init__(self, dialer: Dialer, headers: Mapping[str, str], retries: Retries, memory: int) -> None:
        """A model may have `memory` bytes."""
        self._dialer, self._headers, self._retries, self._memory = dialer, headers, retries, memory
        self._graphs: dict[str, tuple[str, bytes]] = {}
        """kind -> (ETag, graph)."""

    async def graph(self, kind: str) -> bytes:
        """Return the run's "step" or "evaluation" as an ONNX graph. An unchanged one is not sent again.

        The server exports it at the first request, which may take minutes. Raises ConfigError if it has none,
        ServerAtFault if it is longer than LONGEST_GRAPH, Unauthorized if the credential is unknown.
        """
        log.info("waiting for the run's %s as a graph, which the server may have to make first", kind)
        liveness = self._dialer.liveness
        return await self._retries.until_answered(lambda: liveness.during(self._get_graph(kind)))

    async def model(self, format: str, etag: str) -> DownloadedModel | None:
        """Return the run's best model, or the last one if none was evaluated.

        `format` is onnx or safetensors. None: it has not changed since the one with this ETag. It is asked
        for once, and leaves the session alone. Raises OSError, aiohttp.ClientError, TimeoutError or
        EdgeflockError: ConfigError if the server has none, ServerAtFault if it is longer than the memory.
        """
        url = self._dialer.server() / f"v1/model.{format}"
        found = await self._get(url % {"version": "best"}, etag, self._memory, missing=True)
        if found is None:
            found = await self._get(url % {"version": "last"}, etag, self._memory)
        return found if found is not None and found.octets else None

    async def load(self, cache: CachedFile) -> bool:
        """Download the rest of a file. Return False if the server has it no longer, or has another.

        It resumes after a lost connection. Raises Malformed if the data differ from the announcement,
        ConfigError if `cache` cannot be written, Unauthorized if the credential is unknown.
        """
        found, liveness = True, self._dialer.liveness
        while found and cache.missing:
            before = cache.size
            found = await self._retries.until_answered(lambda: liveness.during(self._load(cache)))
            if found and cache.missing:
                log.warning(
                    "connection lost after %d bytes of the %s; it resumes",
                    *(cache.size - before, cache.kind.name),
                )
                await self._retries.pause()
        return found

    async def _get_graph(self, kind: str) -> bytes:
        etag, graph = self._graphs.get(kind, ("", b""))
        found = await self._get(self._dialer.server() / "v1/graphs" / kind, etag, LONGEST_GRAPH)
        assert found is not None, "nothing is missing"
        if found.octets:
            self._graphs[kind] = etag, graph = found
        return graph

    async def _get(self, url: URL, etag: str, limit: int, *, missing: bool = False) -> DownloadedModel | None:
        """Return (ETag, body), without a body if it has not changed. None: 404, if it may be `missing`."""
        headers = {**self._headers, **({"If-None-Match": etag} if etag else {})}
        timeout = aiohttp.ClientTimeout(total=_GRAPH_SECONDS, sock_connect=20, sock_read=ANSWER_SECONDS)
        async with self._dialer.http.get(url, headers=headers, timeout=timeout) as response:
            if response.status == 304:
                return DownloadedModel(etag, b"")
            if response.status == Unauthorized.status:
                raise Unauthorized(NOT_JOINED)
            if response.status == 404 and missing:
                return None
            if not response.ok and not is_transient(response.status):
                what = "model" if "model" in url.name else "graph"
                answer = await read_body(response, _LONGEST_DETAIL)
                detail = detail_of(answer, f"{response.status} {response.reason}")
                raise ConfigError(f"{url} gives no {what}: {detail}")
            response.raise_for_status()
            return DownloadedModel(response.headers.get("ETag", ""), await read_body(response, limit))

    async def _load(self, cache: CachedFile) -> bool:
        """Download until the connection drops. Connection errors are raised only if no bytes came."""
        dialer, before = self._dialer, cache.size
        url = dialer.server() / "v1" / cache.kind.route % {"device": dialer.conversation.hello.device}
        headers = {**self._headers, **cache.headers}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=SILENT_SECONDS)
        try:
            async with dialer.http.get(url, headers=headers, timeout=timeout) as response:
                if response.status == Unauthorized.status:
                    raise Unauthorized(NOT_JOINED)
                if response.status == 404:
                    return False
                response.raise_for_status()
                if not cache.begin(response.headers):
                    return False
                async for octets in response.content.iter_any():
                    cache.add(octets)
        except (OSError, aiohttp.ClientError, TimeoutError):
            if cache.size <= before:
                raise
        return True


async def read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the body. Raises ServerAtFault once it is longer than `limit` bytes."""
    body = bytearray()
    async for part in response.content.iter_chunked(1 << 16):
        body += part
        if len(body) > limit:
            raise ServerAtFault(f"{response.url.with_query(None)} answered with more than {limit} bytes")
    return bytes(body)
