"""HTTP requests of a device wait for its rate limit, as its updates do."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from edgeflock.server.http.callers import caller_of, is_known
from edgeflock.server.http.keys import HOST
from edgeflock.server.http.roles import SESSION, access_of
from edgeflock.server.roster import Pace


@web.middleware
async def pace(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """The answer, once a device has paid for what came before; then it owes this."""
    clock = asyncio.get_running_loop().time
    if (limit := _pace_of(request)) is not None and (wait := limit.wait(began := clock())) > 0:
        try:
            await asyncio.sleep(wait)
        finally:
            limit.held_back += clock() - began
    octets = 0
    try:
        response = await handler(request)
        octets = response.content_length or 0
        return response
    finally:
        pay(request, octets)


def pay(request: web.Request, octets: int) -> None:
    """A device that asks owes so many bytes, as in its session."""
    if (limit := _pace_of(request)) is not None:
        limit.spend(octets, asyncio.get_running_loop().time())


def _pace_of(request: web.Request) -> Pace | None:
    """None of operators, and of a session, which looks after itself."""
    if not is_known(request) or access_of(request) is SESSION:
        return None
    caller = caller_of(request)
    return request.app[HOST].paces.of(caller.name) if caller.role == "device" else None
