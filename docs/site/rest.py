"""Every route of the server's HTTP, of the tables that serve them."""

import re
from inspect import getdoc
from typing import Any

from aiohttp import web

from docs.site.settings import escaped
from edgeflock.server.http import actions, joining, metrics, models, status
from edgeflock.server.http import page as browser
from edgeflock.server.supervision.accounts import Accounts
from edgeflock.server.supervision.app import OwnRoutes
from edgeflock.shared.settings.config import Config

_INTRODUCTION = """\
# HTTP

What a server answers, except for the devices' WebSocket, `/v1/session`, which [the protocol](../protocol.md)
describes. Tokens go into `Authorization: Bearer TOKEN`; who may do what:
[roles](../operations.md#who-may-do-what). Errors are JSON with a [code](errors.md) and a
text: `{"code": "forbidden", "detail": "..."}`.

| method | path | |
|---|---|---|
"""

_SEVERAL_RUNS = """
## Several runs

[A server of several runs](../how-to/several-runs.md) has all of the above below `/v1/runs/NAME` for each
run, and its own routes:

| method | path | |
|---|---|---|
"""


def page() -> str:
    """Markdown: a row a route, with the first lines of what its handler says of itself."""
    rows = []
    for table in (
        status.routes,
        actions.routes,
        models.routes,
        metrics.routes,
        joining.routes,
        browser.routes,
    ):
        for route in table:
            assert isinstance(route, web.RouteDef), "tables hold routes with a method and a path"
            said = " ".join((getdoc(route.handler) or "").split())
            path = re.sub(r"{(\w+):[^/]+}", r"{\1}", route.path.replace("[^/]+", "text"))
            rows.append(f"| {route.method} | `{path}` | {escaped(said)} |")
    return _INTRODUCTION + "\n".join(rows) + "\n" + _SEVERAL_RUNS + "\n".join(_own_rows()) + "\n"


def _own_rows() -> list[str]:
    """The rows of a server of several runs."""
    nothing: Any = None
    rows = []
    own = OwnRoutes(nothing, Accounts(nothing, nothing), nothing, nothing, nothing, nothing, Config())
    for route in own.app().router.routes():
        said = " ".join((getdoc(route.handler) or "").split())
        if said and route.method != "HEAD" and route.resource is not None:
            rows.append(f"| {route.method} | `{route.resource.canonical}` | {escaped(said)} |")
    return rows
