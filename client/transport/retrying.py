"""Retries requests until there is an answer, for a device's session and its downloads."""

import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import aiohttp

from edgeflock.shared.errors import (
    NoRoom,
    Quarantined,
    Refused,
    RunDiverged,
    TooManyDevices,
    TooSlow,
    Unavailable,
)
from edgeflock.shared.protocol.backoff import RepeatedReasons, back_off, failure_reason, permanent_error
from edgeflock.shared.protocol.shown import printable

R = TypeVar("R")

log = logging.getLogger(__name__)

ANSWER_SECONDS = 300.0
"""The longest wait for an answer, e.g. a large model on a slow connection. Heartbeats find dead ones."""

MAX_DELAY = 300
"""Longest retry delay in seconds that a server can request, since an operator may change the decision."""

_TRANSIENT = (NoRoom, Quarantined, RunDiverged, TooManyDevices, TooSlow, Unavailable)


class Retries:
    """The retries of one device at one server."""

    def __init__(
        self,
        server: Callable[[], str],
        random: Random,
        sleep: Callable[[float], Awaitable[None]],
        hang_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`server` returns the present server's URL. `hang_up` ends the session: a new one begins."""
        self._server, self._random, self._sleep, self._hang_up = server, random, sleep, hang_up

    async def until_answered(self, attempt: Callable[[], Awaitable[R]]) -> R:
        """Retry `attempt` and return its result. Raises ConfigError if it can never succeed."""
        delays, reasons = back_off(self._random), RepeatedReasons()
        while True:
            try:
                return await attempt()
            except (*_TRANSIENT, OSError, aiohttp.ClientError, TimeoutError) as error:
                server = self._server()  # before another one is selected
                await self._hang_up()
                status = error.status if isinstance(error, aiohttp.ClientResponseError) else None
                if hopeless := permanent_error(server, error, status):
                    raise hopeless from error
                delay, reason = next(delays), failure_reason(server, error)
                if isinstance(error, Refused):
                    delay += min(error.seconds, MAX_DELAY)
                    reason = printable(str(error))
                if reasons.is_due(reason, delay):
                    log.warning("%s; trying again in %.1f s, and then until it works", reason, delay)
                await self._sleep(delay)

    async def pause(self) -> None:
        """Wait before resuming a partial answer."""
        await self._sleep(next(back_off(self._random)))
