"""A device's credentials: a credential in each request, a TLS certificate, and a proof of its key.

The device sends the proof at the start of a session if the server asks for it.
"""

import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import aiohttp
from yarl import URL

from edgeflock.client.identity import ClientIdentity
from edgeflock.client.transport.joining import renew
from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.identity import (
    CHALLENGE,
    CHALLENGE_BYTES,
    NO_PIN,
    ROTATE,
    from_base64url,
    load_certificate,
    session_message,
    sign,
)
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
