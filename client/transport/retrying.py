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
from edgeflock.shared.protocol.backoff import back_off, permanent_error
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
        server: str,
        random: Random,
        sleep: Callable[[float], Awaitable[None]],
        hang_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`hang_up` ends the session, if there is one: after each failure a new one begins."""
        self._server, self._random, self._sleep, self._hang_up = server, random, sleep, hang_up

    async def until_answered(self, attempt: Callable[[], Awaitable[R]]) -> R:
        """Retry `attempt` and return its result. Raises ConfigError if it can never succeed."""
        delays = back_off(self._random)
        while True:
            try:
                return await attempt()
            except (*_TRANSIENT, OSError, aiohttp.ClientError, TimeoutError) as error:
                await self._hang_up()
                status = error.status if isinstance(error, aiohttp.ClientResponseError) else None
                if hopeless := permanent_error(self._server, error, status):
                    raise hopeless from error
                delay = next(delays)
                if isinstance(error, Refused):
                    delay += min(error.seconds, MAX_DELAY)
                reason = printable(str(error)) or type(error).__name__
                log.warning("%s; trying again in %.1f s", reason, delay)
                await self._sleep(delay)

    async def pause(self) -> None:
        """Wait before resuming a partial answer."""
        await self._sleep(next(back_off(self._random)))
