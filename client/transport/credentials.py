"""What a device shows of itself: its credential with every request, its certificate in TLS, and as a session
begins, if the server asks, that it has its key.
"""

import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import aiohttp
from yarl import URL

from edgeflock.client.identity import ClientIdentity
from edgeflock.client.joining import renew
from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.identity import (
    CHALLENGE,
    CHALLENGE_BYTES,
    NO_PIN,
    ROTATE,
    from_text,
    session_words,
    sign,
    with_certificate,
)
from edgeflock.shared.protocol.shown import shown

log = logging.getLogger(__name__)


class Credentials:
    """Those of one device; of one that has not joined, none."""

    def __init__(
        self,
        identity: ClientIdentity | None,
        tls: ssl.SSLContext | bool,
        renewed: Callable[[ClientIdentity], None],
    ) -> None:
        """`renewed` is told of another identity that the server wants this device to have."""
        self._identity, self._tls, self._renewed = identity, tls, renewed
        self.headers: dict[str, str] = {}
        """Of every request, downloads too."""
        self._challenge, self._is_to_renew = b"", False
        self._show()

    async def read(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, ended: aiohttp.TraceRequestEndParams
    ) -> None:
        """What the answer that begins a session asks for; others ask for nothing."""
        if ended.response.status != 101:
            return
        with suppress(ValueError):
            self._challenge = from_text(ended.response.headers.get(CHALLENGE, ""))
        self._is_to_renew = ROTATE in ended.response.headers

    def proof(self) -> bytes:
        """Of this device's key, if the server asks for one."""
        identity = self._identity
        if identity is None or len(self._challenge) != CHALLENGE_BYTES:
            return b""
        pin = identity.pin or NO_PIN
        return sign(identity.key, session_words(self._challenge, identity.realm, pin, identity.name))

    async def renew(self, http: aiohttp.ClientSession, server: URL) -> None:
        """Get another key and credential, if the server wants that; if it fails, the next session tries."""
        if self._identity is None or not self._is_to_renew:
            return
        try:
            identity = await renew(http, self._identity, server)
        except EdgeflockError as error:
            log.warning("no new credential: %s", shown(str(error)))
            return
        self._renewed(identity)
        self._identity = identity
        self._show()

    def _show(self) -> None:
        identity = self._identity
        if identity is not None:
            self.headers["Authorization"] = f"Bearer {identity.credential}"
            if identity.certificate and isinstance(self._tls, ssl.SSLContext):
                with_certificate(self._tls, identity.key, identity.certificate)
