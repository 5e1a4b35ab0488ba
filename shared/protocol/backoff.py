"""Retries: how long to wait before the next attempt, and which errors are permanent.

Devices and monitors use it for their server, streams for their broker. Errors that may pass are retried
forever: a refused connection, an unresolved name, a timeout, a server error (5xx). An error that a person
must fix is reported once.
"""

import socket
import ssl
from collections.abc import Iterator
from typing import Protocol

from edgeflock.shared.errors import ConfigError, WrongKey
from edgeflock.shared.protocol.shown import printable


class Uniform(Protocol):
    """A source of random numbers: random.Random, or a generator of numpy."""

    def uniform(self, a: float, b: float, /) -> float: ...


_TRANSIENT = (408, 425, 429)
"""Statuses below 500 that mean "later": Request Timeout, Too Early, Too Many Requests."""

_MISDIRECTED = 421
"""The answer of a gateway to what only its leader answers."""

_UPGRADE = 426
"""The answer of the server's TLS port to plain HTTP."""

_NOT_YET_VALID, _EXPIRED, _OTHER_NAMES = 9, 10, (62, 64)
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED, _HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH."""


def back_off(random: Uniform, first: float = 0.5, longest: float = 30.0) -> Iterator[float]:
    """Yield the seconds to wait before each next attempt: exponential, with full jitter, forever.

    After M. Brooker, "Exponential Backoff And Jitter", 2015: the devices of a fleet that lost its server must
    not return at the same time.
    """
    bound = first
    while True:
        yield random.uniform(0, bound)
        bound = min(longest, 2 * bound)


class RepeatedReasons:
    """Decides which failures of an outage to log: each reason when it is new, and once a minute."""

    def __init__(self) -> None:
        self._waited, self._due = 0.0, dict[str, float]()

    def is_due(self, reason: str, delay: float) -> bool:
        """Return whether to log `reason`; the next attempt is in `delay` seconds."""
        if is_due := self._waited >= self._due.get(reason, 0.0):
            self._due[reason] = self._waited + 60.0
        self._waited += delay
        return is_due


def failure_reason(url: str, error: BaseException) -> str:
    """Return in plain words why `url` did not answer, and what to do."""
    cause: BaseException = getattr(error, "os_error", None) or error  # aiohttp's has its own words
    if isinstance(cause, ConnectionRefusedError):
        return f"nothing listens at {url}: start the server, or correct the address"
    if isinstance(cause, socket.gaierror):
        return f"no machine has the name in {url} ({cause.strerror}): correct it, or write the IP address"
    if isinstance(cause, TimeoutError):
        return f"no answer in time from {url}: check that the server runs, and the address"
    if status := getattr(error, "status", 0):
        return f"{url} answers {status}: the server, or a proxy in front of it, cannot serve now"
    reason = printable(str(getattr(cause, "strerror", None) or cause)) or type(cause).__name__
    return f"no answer from {url}: {reason}"


def is_transient(status: int) -> bool:
    """Whether an unexpected HTTP answer of this status may change later."""
    return not 200 <= status < 500 or status in _TRANSIENT


def permanent_error(url: str, error: Exception, status: int | None = None) -> ConfigError | None:
    """Return the error to report if a retry of `url` is useless after `error`; None if the error may pass.

    `status` is that of an unexpected HTTP answer, if one came.
    """
    if status is not None:
        return _status_error(url, status)
    # Libraries wrap the ssl module's errors in their own, which derive from these but lack the details.
    for cause in _causes(error):
        if isinstance(cause, WrongKey):
            return ConfigError(f"{url}: {cause.args[0]}")
        if isinstance(cause, ssl.SSLCertVerificationError) and hasattr(cause, "verify_code"):
            return _certificate_error(url, cause)
        if isinstance(cause, ssl.SSLError) and getattr(cause, "reason", "") == "WRONG_VERSION_NUMBER":
            scheme = url.partition(":")[0]
            return ConfigError(
                f"{url} speaks no TLS: write {scheme.removesuffix('s')}:// instead of {scheme}://"
            )
    return None


def _status_error(url: str, status: int) -> ConfigError | None:
    if is_transient(status):
        return None
    if status == _UPGRADE and url.startswith("http:"):
        return ConfigError(f"{url} speaks TLS: write https:// instead of http://")
    if status in (400, _UPGRADE):
        return ConfigError(
            f"{url} opens no WebSocket (it answers {status}): check that it is an Edgeflock server, and "
            "that a proxy in front of it passes the Upgrade header on"
        )
    if status == _MISDIRECTED:
        return ConfigError(f"{url} is a gateway (it answers {status}): give the address of its leader")
    if status in (401, 403, 407):
        return ConfigError(f"{url} does not accept this machine (it answers {status}): ask its operator")
    return ConfigError(f"{url} is no Edgeflock server or run (it answers {status}): check the address")


def _certificate_error(url: str, error: ssl.SSLCertVerificationError) -> ConfigError | None:
    code = error.verify_code
    if code == _NOT_YET_VALID:  # without a battery a board's clock is in the past until it is set
        return None
    if code == _EXPIRED:
        remedy = "renew it, if this machine's clock is right"
    elif code in _OTHER_NAMES:
        remedy = "use a name that it is valid for"
    else:
        remedy = "if an Edgeflock server made it itself, give a token of its run (--token-file); "
        remedy += "if its authority is your own, name the file of its certificate in SSL_CERT_FILE"
    reason = error.verify_message.rstrip(".")
    return ConfigError(f"{url} shows a certificate that this machine does not trust ({reason}): {remedy}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its cause, the cause of that, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
