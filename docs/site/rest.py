"""Every route of the server's HTTP, of the tables that serve them."""

import re
from inspect import getdoc

from aiohttp import web

from docs.site.settings import escaped
from edgeflock.server.http import actions, api, first_model, joining, metrics, models
from edgeflock.server.http import page as browser

_INTRODUCTION = """\
# HTTP

What a server answers beside the devices' WebSocket, `/v1/session`, which [the protocol](../protocol.md)
describes. Tokens go into `Authorization: Bearer TOKEN`; who may do what:
[roles](../operations.md#who-may-do-what). Errors are `application/problem+json` (RFC 9457), with the
[code](errors.md) as `type`.

| method | path | |
|---|---|---|
"""


def page() -> str:
    """Markdown: a row a route, with the first lines of what its handler says of itself."""
    rows = []
    for table in (
        api.routes,
        actions.routes,
        models.routes,
        metrics.routes,
        first_model.routes,
        joining.routes,
        browser.routes,
    ):
        for route in table:
            assert isinstance(route, web.RouteDef), "tables hold routes with a method and a path"
            said = " ".join((getdoc(route.handler) or "").split())
            path = re.sub(r"{(\w+):[^/]+}", r"{\1}", route.path.replace("[^/]+", "text"))
            rows.append(f"| {route.method} | `{path}` | {escaped(said)} |")
    return _INTRODUCTION + "\n".join(rows) + "\n"
