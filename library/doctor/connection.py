"""Checks of the connection to the server, and of its answer to this device."""

import asyncio
import email.utils
from dataclasses import dataclass

import aiohttp

from edgeflock.client.identity import ClientIdentity, url_of
from edgeflock.client.transport.credentials import Credentials
from edgeflock.doctor.finding import CheckResult, bad, ok, warn
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.identity import tls_for
from edgeflock.shared.protocol.backoff import failure_reason, permanent_error
from edgeflock.shared.protocol.shown import printable

_SECONDS = aiohttp.ClientTimeout(total=20, sock_connect=10)


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a request."""

    url: str
    status: int = 0
    """The HTTP status, 0 without an answer."""
    date: float | None = None
    """The time of the server's clock."""
    error: str = ""
    is_permanent: bool = False
    """Whether another attempt cannot help."""


_CLOSE_SECONDS = 0.25
"""Seconds for TLS to end after the session is closed, because aiohttp does not wait for it."""


async def query_server(server: str, identity: ClientIdentity | None, *, insecure: bool) -> Answer:
    """GET /v1/status with this device's credential. A server with another TLS key receives nothing."""
    try:
        url = url_of(server)
        pin = b"" if identity is None else identity.pin
        insecure = insecure or (identity is not None and identity.insecure)
        tls = tls_for(url.scheme, url.host or "", pin, insecure=insecure, mutable=identity is not None)
    except ConfigError as error:
        return Answer(server, error=str(error), is_permanent=True)
    headers = Credentials(identity, tls, lambda renewed: None).headers
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), timeout=_SECONDS) as http,
            http.get(url / "v1/status", headers=headers, allow_redirects=False) as response,
        ):
            await response.content.read(1 << 16)  # unread data keep the connection open
            return Answer(str(url), response.status, _time(response.headers.get("Date", "")))
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        cause = permanent_error(str(url), error)
        text = printable(str(cause or failure_reason(server, error)))
        return Answer(str(url), error=text, is_permanent=cause is not None)
    finally:
        await asyncio.sleep(_CLOSE_SECONDS)


def check_answer(answer: Answer) -> CheckResult:
    """Check whether the answer is of a server that lets this device take part."""
    if answer.error:
        wait = "if the server runs, check its address and firewalls (devices wait meanwhile)"
        return bad("server", answer.error, "correct what the error names" if answer.is_permanent else wait)
    if answer.status == 200:
        return ok("server", f"{answer.url} knows this device")
    if answer.status == 401:
        return bad(
            "server",
            f"{answer.url} does not know this device: it has not joined, or was revoked",
            "edgeflock client join URL TOKEN, with a token from the server's operator",
        )
    if answer.status >= 500:
        return warn("server", f"{answer.url} answers {answer.status}", "see the server's log; devices wait")
    return bad(
        "server", f"{answer.url} answers {answer.status}: no Edgeflock server", "correct client.server"
    )


def _time(date: str) -> float | None:
    """Return an HTTP Date in seconds since 1970."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
