"""Which roles may use a route, as a decorator below its path says.

    @routes.get("/v1/status")
    @allows(DEVICE)
    async def get_status(request): ...

A route without the decorator serves nobody.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from edgeflock.server.identity import CallerRole

Handler = TypeVar("Handler", bound=Callable[..., Any])

READ_METHODS = ("GET", "HEAD")
"""Methods that do not change anything."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use a route."""

    roles: frozenset[CallerRole]
    reason: str
    """The refusal's reason for other roles."""
    open_roles: frozenset[CallerRole] = frozenset()
    """Roles that may also use it where everybody may take part (server.open)."""

    def refusal(self, role: CallerRole, is_open: bool) -> str:
        """Why `role` may not use it. Empty: it may."""
        if role in self.roles or (is_open and role in self.open_roles):
            return ""
        return self.reason if self in (JOIN, GATEWAY) else _SINGLE_PURPOSE.get(role, self.reason)


_SINGLE_PURPOSE: dict[CallerRole, str] = {
    "gateway": "a token of the role gateway is for edgeflock gateway alone",
    "joining": "this token lets a device join, and nothing else: edgeflock client join URL TOKEN",
}

EVERYBODY = Access(frozenset(), "")
"""Callers need no identity."""

_NO_ROUTE = Access(frozenset(("joining", "gateway", "device", "viewer", "admin")), "")

ADMIN = Access(
    frozenset(("admin",)), "this needs a token of the role admin (edgeflock token create --role admin)"
)

VIEWER = Access(
    frozenset(("viewer", "admin")),
    "this needs a token of the role viewer (edgeflock token create --role viewer): devices are not told of "
    "each other",
)

DEVICE = Access(frozenset(("device", "viewer", "admin")), VIEWER.reason)
"""The run and its model, without other devices."""

GRAPH = Access(frozenset(("gateway", "device", "viewer", "admin")), VIEWER.reason)

JOIN = Access(frozenset(("joining", "device")), "this needs a device's token (edgeflock token create)")

SESSION = Access(
    frozenset(("device",)),
    "a session is of a device that has joined: edgeflock client join URL TOKEN",
    frozenset(("viewer", "admin")),
)

GATEWAY = Access(
    frozenset(("gateway",)),
    "this needs a token of the role gateway (edgeflock token create --role gateway)",
    frozenset(("joining", "device", "viewer", "admin")),
)


def allows(access: Access) -> Callable[[Handler], Handler]:
    """Decorate the handler of a route with the roles that may use it."""

    def decorate(handler: Handler) -> Handler:
        handler.access = access  # type: ignore[attr-defined]
        return handler

    return decorate


def access_of(request: web.Request) -> Access:
    """The roles that may use the route of a request."""
    if request.match_info.http_exception is not None:
        return _NO_ROUTE
    access: Access = request.match_info.handler.access  # type: ignore[attr-defined]
    return access


def device_paths(app: web.Application) -> tuple[str, ...]:
    """The prefixes of the paths that devices use after they have joined."""
    return tuple(
        route.resource.canonical.partition("{")[0]
        for route in app.router.routes()
        if route.resource is not None and getattr(route.handler, "access", None) in (DEVICE, GRAPH, SESSION)
    )
