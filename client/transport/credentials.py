"""A device's credentials, and how it gets them: it joins with a key and a token. docs/protocol.md has more.

Each request has a credential; there may be a TLS certificate. A session begins with a proof of the device's
key if the server asks for it. As it joins, it trusts the server as little as possible. Over TLS the
server proves the key that the token names before the device sends anything. The device uses only the
credential, the realm and the certificate of the answer.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from edgeflock.client.identity import ClientIdentity, urls_of
from edgeflock.shared.errors import REFUSALS, ConfigError, EdgeflockError, Refused, ServerAtFault, Unavailable
from edgeflock.shared.identity import (
    CHALLENGE,
    CHALLENGE_BYTES,
    NO_PIN,
    ROTATE,
    Token,
    from_base64url,
    join_message,
    load_certificate,
    new_key,
    public_of,
    session_message,
    sign,
    tls_for,
    to_base64url,
)
from edgeflock.shared.protocol.backoff import failure_reason, permanent_error
from edgeflock.shared.protocol.shown import printable

log = logging.getLogger(__name__)


class Credentials:
    """The credentials of one device. A device that has not joined has none."""

    def __init__(
        self,
        identity: ClientIdentity | None,
        tls: ssl.SSLContext | bool,
        on_renewed: Callable[[ClientIdentity], None],
    ) -> None:
        """`on_renewed` gets a new identity when the server rotates the device's credential."""
        self._identity, self._tls, self._renewed = identity, tls, on_renewed
        self.headers: dict[str, str] = {}
        """Headers of every request, including downloads."""
        self._challenge, self._is_to_renew = b"", False
        self._apply()

    async def read(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, ended: aiohttp.TraceRequestEndParams
    ) -> None:
        """Read the challenge and the request to rotate from the answer that begins a session."""
        if ended.response.status != 101:
            return
        with suppress(ValueError):
            self._challenge = from_base64url(ended.response.headers.get(CHALLENGE, ""))
        self._is_to_renew = ROTATE in ended.response.headers

    def proof(self) -> bytes:
        """Return a proof of this device's key, or b"" if the server asks for none."""
        identity = self._identity
        if identity is None or len(self._challenge) != CHALLENGE_BYTES:
            return b""
        pin = identity.pin or NO_PIN
        return sign(identity.key, session_message(self._challenge, identity.realm, pin, identity.name))

    async def renew(self, http: aiohttp.ClientSession, server: URL) -> None:
        """Get a new key and credential if the server asks. After a failure the next session retries."""
        if self._identity is None or not self._is_to_renew:
            return
        try:
            identity = await renew(http, self._identity, server)
        except EdgeflockError as error:
            log.warning(
                "the credential was not replaced, the next session retries: %s", printable(str(error))
            )
            return
        self._renewed(identity)
        self._identity = identity
        self._apply()

    def _apply(self) -> None:
        identity = self._identity
        if identity is not None:
            self.headers["Authorization"] = f"Bearer {identity.credential}"
            if identity.certificate and isinstance(self._tls, ssl.SSLContext):
                load_certificate(self._tls, identity.key, identity.certificate)


_SECONDS = aiohttp.ClientTimeout(total=60, sock_connect=20)

_LONGEST = 1 << 14
"""Bytes of an answer."""


async def join(server: str, token: str, name: str, *, insecure: bool = False) -> ClientIdentity:
    """Return a new identity for `name`. Raises ConfigError, or the server's Refused."""
    parsed = Token.parse(token)
    urls = urls_of(server)
    for url in urls:
        tls = tls_for(url.scheme, url.host or "", parsed.pin, insecure=insecure)
    identity = ClientIdentity(
        ",".join(map(str, urls)), name, token, b"", b"", parsed.pin, parsed.graph, insecure=insecure
    )
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls), cookie_jar=aiohttp.DummyCookieJar()
    ) as http:
        for other in urls[:-1]:
            try:
                return await renew(http, identity, other)
            except EdgeflockError as error:  # a standby, or not reachable
                if isinstance(error, Refused | ConfigError) and not isinstance(error, Unavailable):
                    raise
        return await renew(http, identity, urls[-1])


async def renew(http: aiohttp.ClientSession, identity: ClientIdentity, server: URL) -> ClientIdentity:
    """Return the identity with a new key and credential, valid from the device's next session on.

    The present ones are valid until then. `server` is a URL. An identity without a key joins with its
    credential, a token.
    """
    key = new_key()
    public = public_of(key)
    words = join_message(identity.credential, identity.pin or NO_PIN, public, identity.name)
    body = {"name": identity.name, "key": to_base64url(public), "proof": to_base64url(sign(key, words))}
    if identity.key:
        body["before"] = to_base64url(sign(identity.key, words))
    answer = await _post(http, server / "v1/join", identity.credential, body)
    try:
        credential, realm = answer["credential"], from_base64url(answer["realm"])
        certificate = answer.get("certificate", "")
        if certificate:
            load_certificate(ssl.create_default_context(), key, certificate)
        if not (isinstance(credential, str) and 0 < len(credential) <= 200 and len(realm) == 16):
            raise ValueError
        credential.encode("ascii")
    except (KeyError, TypeError, ValueError, AttributeError, ssl.SSLError):
        raise ServerAtFault("the server let this device join without a credential") from None
    return replace(identity, key=key, credential=credential, realm=realm, certificate=certificate)


async def _post(http: aiohttp.ClientSession, url: URL, bearer: str, body: dict[str, str]) -> Any:
    headers = {"Authorization": f"Bearer {bearer}"}
    try:
        async with http.post(
            url, headers=headers, json=body, timeout=_SECONDS, allow_redirects=False
        ) as response:
            status = response.status
            try:
                text = await response.content.readexactly(_LONGEST)
            except asyncio.IncompleteReadError as whole:
                text = whole.partial
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        server = str(url).removesuffix("/v1/join")
        raise permanent_error(server, error) or EdgeflockError(failure_reason(server, error)) from error
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = {}
    if status == 200:
        return answer
    if isinstance(answer, dict) and "detail" in answer:
        raise REFUSALS.get(str(answer.get("code")), Refused)(printable(str(answer["detail"])))
    raise permanent_error(str(url), EdgeflockError(), status) or EdgeflockError(f"{url} answered {status}")
