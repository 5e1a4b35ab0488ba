"""The addresses of a gateway's leader, and the credential for it."""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import NamedTuple

import aiohttp
from yarl import URL

from edgeflock.server.sessions import HANG_SECONDS
from edgeflock.shared.errors import ConfigError, Unauthorized, Unavailable
from edgeflock.shared.identity import load_certificate, pin_from_token, tls_for
from edgeflock.shared.protocol.backoff import is_transient, permanent_error
from edgeflock.shared.protocol.shown import detail_of

_PATIENCE_LIMIT = 60.0

_LONGEST_FILE, _LONGEST_ANSWER = 1 << 28, 1 << 16
"""Bytes."""


_FILE_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=300)
"""A file may take as long as its line needs. The leader may make it first, and needs minutes for a graph."""


class ClientCertificate(NamedTuple):
    """The client certificate of a gateway, where all must show one: it has joined as a device."""

    key: bytes
    """The private Ed25519 key."""
    certificate: str
    """In PEM."""


class Leaders:
    """A leader and its standbys: the first URL is asked."""

    def __init__(
        self, urls: str, token: str, certificate: ClientCertificate | None = None, *, insecure: bool = False
    ) -> None:
        """`urls` has commas. Raises ConfigError if one is invalid, or the token may not go there."""
        self._urls = _urls(urls)
        pin = pin_from_token(token)
        for url in self._urls:
            self.tls = tls_for(
                url.scheme, url.host or "", pin, insecure=insecure, mutable=certificate is not None
            )
        if certificate is not None and isinstance(self.tls, ssl.SSLContext):
            load_certificate(self.tls, certificate.key, certificate.certificate)
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._files: dict[URL, tuple[Mapping[str, str], bytes]] = {}
        """(headers, file) as last received."""
        self._fetching = asyncio.Lock()
        """Held while a fixed file is requested, so that its devices wait for one answer."""
        self._patience = HANG_SECONDS
        """Seconds that the next attempt may take: each attempt gives a slow leader more."""

    @property
    def url(self) -> URL:
        """The URL of the server that is asked."""
        return self._urls[0]

    def rotate(self) -> None:
        """Move to the next server. Files of the last one are dropped."""
        self._urls = [*self._urls[1:], self._urls[0]]
        self._files.clear()

    async def connect(self, http: aiohttp.ClientSession, url: URL) -> aiohttp.ClientWebSocketResponse:
        """Open a line. It fails once nothing has come from the leader for HANG_SECONDS seconds."""
        try:
            async with asyncio.timeout(self._patience):
                # aiohttp pings after this time without a byte, and gives up after half of it more.
                ping, headers = HANG_SECONDS * 2 / 3, self.headers
                socket = await http.ws_connect(
                    url, headers=headers, heartbeat=ping, max_msg_size=0, compress=0
                )
        except TimeoutError:
            reason = f"it has not answered for {self._patience:g} s"
            self._patience = min(2 * self._patience, _PATIENCE_LIMIT)
            raise TimeoutError(reason) from None
        self._patience = HANG_SECONDS
        return socket

    async def diagnose(self, http: aiohttp.ClientSession, url: URL, error: Exception) -> ConfigError | None:
        """Return the error to raise if asking for `url` again is useless after `error`; else None."""
        status = error.status if isinstance(error, aiohttp.WSServerHandshakeError) else None
        if status is None or is_transient(status):
            return permanent_error(str(self.url), error)
        detail = f"it answers {status}"
        with suppress(OSError, aiohttp.ClientError, TimeoutError, Unavailable):
            async with http.get(url, headers=self.headers) as answer:
                detail = detail_of(await read_body(answer), detail)
        if status == Unauthorized.status and "token create" not in detail:
            detail += "; make one: edgeflock token create --role gateway"
        return ConfigError(f"{self.url.origin()} takes no gateway: {detail}")

    async def fetch(
        self, http: aiohttp.ClientSession, url: URL, *, fixed: bool = False
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return (status, headers, body) of a file of the leader.

        An unchanged file is not sent again. A `fixed` one is requested once.
        """
        async with self._fetching if fixed else nullcontext():
            headers, octets = self._files.get(url, ({}, b""))
            if fixed and headers:
                return 200, headers, octets
            known = {"If-None-Match": headers["ETag"]} if "ETag" in headers else {}
            async with http.get(url, headers={**self.headers, **known}, timeout=_FILE_TIMEOUT) as answer:
                if answer.status == 304:
                    return 200, headers, octets
                octets = await read_body(answer, _LONGEST_FILE)
                names = ("ETag", "X-Edgeflock-Version") if answer.status == 200 else ("Content-Type",)
                headers = {name: answer.headers[name] for name in names if name in answer.headers}
                if answer.status == 200:
                    self._files[url] = headers, octets
                return answer.status, headers, octets


async def read_body(answer: aiohttp.ClientResponse, limit: int = _LONGEST_ANSWER) -> bytes:
    """Return the body of an answer. Raises Unavailable if it has more than `limit` bytes."""
    try:
        await answer.content.readexactly(limit + 1)
    except asyncio.IncompleteReadError as whole:
        return whole.partial
    raise Unavailable(f"the leader answers {answer.url.path} with more than {limit} bytes")


def _urls(text: str) -> list[URL]:
    """Raises ConfigError."""
    urls = [URL(url.strip()) for url in text.split(",") if url.strip()]
    if not urls or not all(url.scheme in ("http", "https") and url.host for url in urls):
        raise ConfigError(f"--upstream {text!r} must be the http(s) URL of the run's server")
    if len({url.scheme for url in urls}) > 1:
        raise ConfigError(f"--upstream {text!r}: all must be https:// or all http://")
    return urls
