"""The middlewares that each request passes before its handler, in this order.

count          finds the caller, counts the request at its connection, and answers refusals
check_origin   refuses what a page of another site sends (CSRF)
check_role     lets in the roles that the route names, with the certificate that the run demands
read_body      reads the body of an action in time
limit_rate     holds a device to its share
audit          notes what an admin does
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from edgeflock.server.connections.forwarding import forwarded_origin
from edgeflock.server.http.bodies import problem, read_in_time
from edgeflock.server.http.callers import (
    awaits_credential,
    caller_of,
    has_caller,
    has_login,
    is_open,
    note,
    refusal_of,
    remember_caller,
)
from edgeflock.server.http.keys import CONNECTION, CONNECTION_LIMITS, HOST, ORIGINS
from edgeflock.server.http.roles import ADMIN, EVERYBODY, READ_METHODS, SESSION, access_of
from edgeflock.server.roster import RateLimiter
from edgeflock.shared.errors import Refused, Unavailable
from edgeflock.shared.identity import is_loopback

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count the request at its connection, which has longer time limits once its caller is known."""
    remember_caller(request)
    connection = request.app[CONNECTION_LIMITS].find(request.transport)
    if connection is None:
        return _lost_response()
    request[CONNECTION] = connection
    connection.begin(authenticated=has_caller(request))
    try:
        return await handler(request)
    except Refused as error:
        return _refuse(error.status, error.code, str(error))
    except ConnectionError:
        return _lost_response()
    finally:
        connection.end()


@web.middleware
async def check_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse an action or a WebSocket from a page of another site.

    Only browsers send the Origin that this checks.
    """
    if request.method == "OPTIONS" and _is_listed(request):  # the browser asks before its page may
        return web.Response(status=204)
    reason = _foreign_reason(request)
    return _refuse(403, "forbidden", reason) if reason else await handler(request)


@web.middleware
async def check_role(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Check that the caller has a role that the route allows, and the certificate that the run demands."""
    if access_of(request) is EVERYBODY or awaits_credential(request):
        return await handler(request)
    reason = refusal_of(request, caller_of(request))
    return _refuse(403, "forbidden", reason) if reason else await handler(request)


@web.middleware
async def read_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Read the body of an action, within limits.request_seconds."""
    if request.method not in READ_METHODS:
        await read_in_time(request, request.app[HOST].config.limits.request_seconds)
    return await handler(request)


@web.middleware
async def limit_rate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Delay a device's answer until its rate limit allows it, then charge what is sent of it to the limit."""
    clock = asyncio.get_running_loop().time
    if (limit := _limiter_of(request)) is not None and (wait := limit.wait_seconds(began := clock())) > 0:
        try:
            await asyncio.sleep(wait)
        finally:
            limit.delay_seconds += clock() - began
    meter, length = request[CONNECTION].meter, 0
    before = meter.egress
    try:
        response = await handler(request)
        if not response.prepared and request.method != "HEAD":  # its body is sent after this
            length = response.content_length or 0
        return response
    finally:
        charge(request, meter.egress - before + length)


@web.middleware
async def audit(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Note each admin action in the audit log. joining.py and page.py note joins and logins, with names."""
    response = await handler(request)
    if access_of(request) is ADMIN and response.status < 400:
        note(request, caller_of(request).name, f"POST {request.path}", request[CONNECTION].address)
    return response


async def close_forwarded(request: web.Request, response: web.StreamResponse) -> None:
    """End a forwarded connection with its first answer: the next request may be for another run."""
    if forwarded_origin(request.transport) is not None and not isinstance(response, web.WebSocketResponse):
        response.force_close()
        response.headers["Connection"] = "close"


async def share_answer(request: web.Request, response: web.StreamResponse) -> None:
    """Let pages of the listed origins read the answer (CORS). They show tokens: no login's cookie counts."""
    if _is_listed(request):
        response.headers.update(_SHARED | {"Access-Control-Allow-Origin": request.headers["Origin"]})


_SHARED = {
    "Access-Control-Allow-Headers": "Authorization, Content-Type, If-None-Match, If-Range, Range",
    "Access-Control-Expose-Headers": "Content-Range, ETag, X-Edgeflock-Version",
    "Access-Control-Max-Age": "600",
    "Vary": "Origin",
}


def _is_listed(request: web.Request) -> bool:
    """Whether the request is of a page of an origin that the operator has listed."""
    return request.headers.get("Origin", "").lower() in request.app[ORIGINS].listed


MIDDLEWARES = (count, check_origin, check_role, read_body, limit_rate, audit)


def charge(request: web.Request, octets: int) -> None:
    """Charge these bytes to the device's rate limit, as its session does."""
    if (limit := _limiter_of(request)) is not None:
        limit.charge(octets, asyncio.get_running_loop().time())


def _limiter_of(request: web.Request) -> RateLimiter | None:
    """The caller's rate limit. None for operators, and for a session, which limits itself."""
    if not has_caller(request) or access_of(request) is SESSION:
        return None
    caller = caller_of(request)
    return request.app[HOST].rate_limiters.get(caller.name) if caller.role == "device" else None


def _refuse(status: int, code: str, reason: str) -> web.Response:
    """A refusal that closes the connection, so that the rest of the request is not read."""
    response = problem(status, code, reason)
    response.force_close()
    return response


def _lost_response() -> web.Response:
    """The answer on a lost connection. Nobody reads it, and it keeps the loss out of the error log."""
    return problem(Unavailable.status, Unavailable.code, "the connection is lost")


def _foreign_reason(request: web.Request) -> str:
    """Why a browser may not send this request for its page. Empty: it may, or this is no browser."""
    if request.method in READ_METHODS and request.headers.get("Upgrade", "").lower() != "websocket":
        return "" if request.headers.get("Authorization") else _foreign_host_reason(request)
    origins, is_browser = request.app[ORIGINS], has_login(request)
    return origins.foreign_reason(request.headers, request.scheme, request.host, has_login=is_browser)


def _foreign_host_reason(request: web.Request) -> str:
    """Why a request without a secret may not use this host name; empty: it may.

    This stops a page elsewhere whose name now points to this machine (DNS rebinding), in an open run.
    """
    host = request.app[HOST].config.server.host
    if not is_open(request.app) or not is_loopback(host) or access_of(request) is EVERYBODY:
        return ""
    if request.app[ORIGINS].is_own(request.host):
        return ""
    return f"this server is not named {request.host!r:.200}; add its origin to server.origins"
