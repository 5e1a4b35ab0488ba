"""Who gets past the door of the server's HTTP, and what an answer that refuses looks like."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from edgeflock.server.operations.keys import DOORS, HOST, ROLES
from edgeflock.server.operations.roles import Who
from edgeflock.shared.errors import Unauthorized, Unavailable

OPEN = frozenset(("/livez", "/readyz"))
"""For everybody: whoever starts and stops servers asks them."""

_OF_DEVICES = ("/v1/session", "/v1/start", "/v1/graphs/", "/v1/status", "/v1/evaluations", "/v1/model")
"""What devices may ask for: the run, its model, and nothing of each other."""

_READING = ("GET", "HEAD")


def problem(status: int, code: str, detail: str) -> web.Response:
    """A refusal as JSON."""
    return web.json_response({"code": code, "detail": detail}, status=status)


def role_of(request: web.Request) -> Who | None:
    return request.app[ROLES].of(request.headers.get("Authorization", ""))


@web.middleware
async def authenticate(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A device may take part and ask about the run, a viewer may see all of it, an admin may do anything."""
    role = role_of(request)
    door = request.app[DOORS].of(request.transport)
    if door is None:
        return _lost()
    door.begin(known=role is not None)
    try:
        refusal = _refusal(request, role) or await _body_is_late(request)
        if refusal is not None:
            refusal.force_close()  # what else it may send is not worth reading
            return refusal
        return await handler(request)
    except Unavailable as error:
        return problem(error.status, error.code, str(error))
    except ConnectionError:
        return _lost()
    finally:
        door.end()


def _lost() -> web.Response:
    """For a line that has dropped: nobody reads it, and it is no error of the server to be logged."""
    return problem(Unavailable.status, Unavailable.code, "the connection is lost")


def _refusal(request: web.Request, role: Who | None) -> web.Response | None:
    if request.path in OPEN or role == "admin":
        return None
    if role is None:
        return problem(
            Unauthorized.status, Unauthorized.code, "send the run's token: Authorization: Bearer TOKEN"
        )
    if request.method not in _READING:
        return problem(
            403,
            "forbidden",
            "this needs the admin token (run.admin_token, or the file admin-token in run.directory)",
        )
    if role == "device" and not request.path.startswith(_OF_DEVICES):
        return problem(
            403,
            "forbidden",
            "this needs the viewer token (run.viewer_token, or the file viewer-token in run.directory): "
            "devices are not told of each other",
        )
    return None


async def _body_is_late(request: web.Request) -> web.Response | None:
    """Whether the body of an action does not come in time; if it does, it is read."""
    if request.method in _READING:
        return None
    seconds = request.app[HOST].config.limits.request_seconds
    try:
        async with asyncio.timeout(seconds):
            await request.read()
    except TimeoutError:
        return problem(
            408, "too-slow", f"the body did not come within {seconds:g} s (limits.request_seconds)"
        )
    return None
