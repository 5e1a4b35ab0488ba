"""What each request passes before its route answers it, in this order: MIDDLEWARES."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from edgeflock.server.http.callers import (
    CERTIFICATES,
    caller_of,
    is_known,
    is_open,
    login_of,
    may_show,
    note,
    remember_caller,
)
from edgeflock.server.http.keys import DOORS, HOST, ORIGINS
from edgeflock.server.http.problem import problem
from edgeflock.server.http.roles import ADMIN, EVERYBODY, JOIN, READING, SESSION, access_of
from edgeflock.server.identity import key_shown
from edgeflock.server.roster import RateLimiter
from edgeflock.shared.errors import Unauthorized, Unavailable
from edgeflock.shared.identity import is_loopback

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def identify(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Find the caller, once."""
    remember_caller(request)
    return await handler(request)


@web.middleware
async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A connection whose caller is known is no stranger's, and has longer time."""
    door = request.app[DOORS].of(request.transport)
    if door is None:
        return _lost()
    door.begin(known=is_known(request))
    try:
        return await handler(request)
    except Unavailable as error:
        return problem(error.status, error.code, str(error))
    except ConnectionError:
        return _lost()
    finally:
        door.end()


@web.middleware
async def check_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A page of another site may neither act nor open a WebSocket. Browsers say where they come from, nobody
    else does.
    """
    why = _foreign(request)
    return _refused(403, "forbidden", why) if why else await handler(request)


@web.middleware
async def check_role(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The caller has a role that its route allows, and the certificate that the run demands."""
    access, app = access_of(request), request.app
    if access is EVERYBODY:
        return await handler(request)
    try:
        caller = caller_of(request)
    except Unauthorized as error:
        return _refused(error.status, error.code, str(error))
    why = access.refusal(caller.role, is_open(app))
    if access is not JOIN and not may_show(app, caller, key_shown(request.get_extra_info("ssl_object"))):
        why = CERTIFICATES
    return _refused(403, "forbidden", why) if why else await handler(request)


@web.middleware
async def read_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The body of an action comes in time, and is read."""
    if request.method not in READING:
        seconds = request.app[HOST].config.limits.request_seconds
        try:
            async with asyncio.timeout(seconds):
                await request.read()
        except TimeoutError:
            why = f"the body did not come within {seconds:g} s (limits.request_seconds)"
            return _refused(408, "too-slow", why)
    return await handler(request)


@web.middleware
async def pace(request: web.Request, handler: Handler) -> web.StreamResponse:
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


@web.middleware
async def audit(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What an admin does is kept. Joining and logging in are noted with names (joining.py, page.py)."""
    door = request.app[DOORS].of(request.transport)
    response = await handler(request)
    if access_of(request) is ADMIN and door is not None and response.status < 400:
        note(request, caller_of(request).name, f"POST {request.path}", door.address)
    return response


MIDDLEWARES = (identify, count, check_origin, check_role, read_body, pace, audit)


def pay(request: web.Request, octets: int) -> None:
    """A device that asks owes so many bytes, as in its session."""
    if (limit := _pace_of(request)) is not None:
        limit.spend(octets, asyncio.get_running_loop().time())


def _pace_of(request: web.Request) -> RateLimiter | None:
    """None of operators, and of a session, which looks after itself."""
    if not is_known(request) or access_of(request) is SESSION:
        return None
    caller = caller_of(request)
    return request.app[HOST].paces.of(caller.name) if caller.role == "device" else None


def _refused(status: int, code: str, why: str) -> web.Response:
    """What else the caller may send is not worth reading."""
    response = problem(status, code, why)
    response.force_close()
    return response


def _lost() -> web.Response:
    """For a line that has dropped: nobody reads it, and it is no error of the server to be logged."""
    return problem(Unavailable.status, Unavailable.code, "the connection is lost")


def _foreign(request: web.Request) -> str:
    """Why a browser may not send this for the page that it shows; empty: it may, or this is no browser."""
    if request.method in READING and request.headers.get("Upgrade", "").lower() != "websocket":
        return "" if request.headers.get("Authorization") else _foreign_name(request)
    origin = request.headers.get("Origin")
    if origin is None:
        # A cookie is a browser's, and a browser says where it comes from.
        without = login_of(request) and not request.headers.get("Authorization")
        return "a login goes with an Origin" if without else ""
    if request.app[ORIGINS].takes(origin, request.scheme, request.host):
        return ""
    return (
        f"a page of another site may neither act here nor open a WebSocket: its Origin is {origin!r:.200}, "
        f"and this is {f'{request.scheme}://{request.host}'!r:.200}; run.origins names others that may"
    )


def _foreign_name(request: web.Request) -> str:
    """The same of a request without a secret, to an open run on this machine, by a name that is not this
    machine's: a page elsewhere, whose name now points here.
    """
    run = request.app[HOST].config.run
    if not is_open(request.app) or not is_loopback(run.host) or access_of(request) is EVERYBODY:
        return ""
    if request.app[ORIGINS].knows(request.host):
        return ""
    return f"this server does not go by the name {request.host!r:.200}; run.origins names others that it has"
