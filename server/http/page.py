"""The browser page: its files, and the login that replaces a token there.

A login is a cookie that scripts cannot read and that only the page's own requests send. middleware.py
checks it, and the origin of requests.
"""

import asyncio

from aiohttp import web

from edgeflock.server.connections import source_of
from edgeflock.server.http.bodies import failed_login, login_response, page_response, read_token
from edgeflock.server.http.callers import authenticate, caller_of, cookie_of, login_of, note
from edgeflock.server.http.keys import ASSETS, ATTEMPTS, AUDIT, CONNECTION, HOST, LOGINS, PAGE_PATH, REGISTER
from edgeflock.server.http.roles import EVERYBODY, VIEWER, allows
from edgeflock.server.identity import NOBODY
from edgeflock.server.web import edition
from edgeflock.shared.errors import Forbidden, Unauthorized

routes = web.RouteTableDef()


@routes.get("/")
@allows(EVERYBODY)
async def get_page(request: web.Request) -> web.StreamResponse:
    """The page. What it shows needs a login, unless the run is open."""
    return page_response(request, request.app[ASSETS], "index.html")


@routes.get("/assets/{name}")
@allows(EVERYBODY)
async def get_asset(request: web.Request) -> web.StreamResponse:
    return page_response(request, request.app[ASSETS], request.match_info["name"])


@routes.get("/v1/login")
@allows(VIEWER)
async def get_login(request: web.Request) -> web.Response:
    """{"role", "login", "edition"}: what the caller may do, whether by a login, and which page this is."""
    caller = caller_of(request)
    login = caller is not NOBODY and bool(login_of(request))
    page_edition = edition(request.app[ASSETS])
    return web.json_response({"role": caller.role, "login": login, "edition": page_edition})


@routes.post("/v1/login")
@allows(EVERYBODY)
async def log_in(request: web.Request) -> web.Response:
    """{"token": text}: a cookie that stands for it, for SECONDS at most."""
    address = source_of(request[CONNECTION].address)
    token = await read_token(request)
    try:
        caller = authenticate(request.app, token)
        if caller is NOBODY:
            raise Unauthorized("the server does not know this token")
        if caller.role not in VIEWER.roles:
            raise Forbidden("this token opens no page; create one: edgeflock token create --role viewer")
    except (Unauthorized, Forbidden) as error:
        app = request.app
        return failed_login(app[ATTEMPTS], app[REGISTER], app[AUDIT], token, address, error)
    number = await asyncio.to_thread(request.app[LOGINS].begin, caller)  # it waits for the disk
    note(request, caller.name, "logged in to the page", address)
    return login_response(request, caller.role, cookie_of(request), number, request.app[PAGE_PATH])


@routes.post("/v1/logout")
@allows(EVERYBODY)
async def log_out(request: web.Request) -> web.Response:
    """End the login of the cookie that comes along; without one nothing happens."""
    await asyncio.to_thread(request.app[LOGINS].end, login_of(request))
    response = web.json_response({})
    response.del_cookie(cookie_of(request), path=request.app[PAGE_PATH], httponly=True, samesite="Strict")
    return response


@routes.get("/v1/history")
@allows(VIEWER)
async def get_history(request: web.Request) -> web.Response:
    """How the run went while this server was up, for curves: docs/operations.md."""
    response = web.json_response(request.app[HOST].hub.trail.rows())
    response.enable_compression()
    return response
