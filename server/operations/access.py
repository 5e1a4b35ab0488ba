"""Who gets past the door of the server's HTTP, and what an answer that refuses looks like."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from edgeflock.server.operations.keys import ROLES
from edgeflock.shared.errors import Unauthorized, Unavailable
from edgeflock.shared.protocol.frames import Role

OPEN = frozenset(("/livez", "/readyz"))
"""For everybody: whoever starts and stops servers asks them."""

_READING = ("GET", "HEAD")


def problem(status: int, code: str, detail: str) -> web.Response:
    """A refusal as JSON."""
    return web.json_response({"code": code, "detail": detail}, status=status)


def role_of(request: web.Request) -> Role | None:
    return request.app[ROLES].of(request.headers.get("Authorization", ""))


@web.middleware
async def authenticate(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A viewer, or a device, may read; an admin may do anything."""
    role = role_of(request)
    if request.path not in OPEN:
        if role is None:
            return problem(
                Unauthorized.status,
                Unauthorized.code,
                "send the run's token: Authorization: Bearer TOKEN",
            )
        if request.method not in _READING and role != "admin":
            return problem(
                403,
                "forbidden",
                "this needs the admin token (run.admin_token, or the file admin-token in run.directory)",
            )
    try:
        return await handler(request)
    except Unavailable as error:
        return problem(error.status, error.code, str(error))
