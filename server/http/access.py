"""Who gets past the door of the server's HTTP, and what an answer that refuses looks like."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from aiohttp import web

from edgeflock.server.http.keys import AUDIT, AUTHORITY, DOORS, HOST, LOGINS, ORIGINS, REGISTER
from edgeflock.server.identity import NOBODY, Caller, key_shown
from edgeflock.server.roster import Pace
from edgeflock.shared.errors import Forbidden, Unauthorized, Unavailable
from edgeflock.shared.identity import is_loopback

JOIN, SESSION, LOGIN, LOGOUT = "/v1/join", "/v1/session", "/v1/login", "/v1/logout"
GATEWAY, GRAPHS = "/v1/gateway", "/v1/graphs/"

OPEN = frozenset((("GET", "/livez"), ("GET", "/readyz"), ("GET", "/"), ("POST", LOGIN), ("POST", LOGOUT)))
"""For everybody: what starts and stops servers asks the first two, a browser without a login the others."""

ASSETS = "/assets/"
"""What the page is made of, for everybody too."""

_OF_DEVICES = (SESSION, "/v1/start", GRAPHS, "/v1/status", "/v1/evaluations", "/v1/model")
"""What devices may ask for: the run, its model, and nothing of each other."""

_CERTIFICATES = (
    "run.client_certificates: a device shows the certificate that it got when it joined, and nobody one of a "
    "device that was revoked"
)

_READING = ("GET", "HEAD")

_SCHEME = "bearer "


def problem(status: int, code: str, detail: str) -> web.Response:
    """A refusal as JSON."""
    return web.json_response({"code": code, "detail": detail}, status=status)


def caller_of(request: web.Request) -> Caller:
    """Whoever asks: with a secret, or, if it shows none, by the login of a browser. Raises Unauthorized where
    the run is not open and knows nobody of this secret.
    """
    secret, login = secret_of(request), login_of(request)
    return who(request.app, secret, "" if secret else login)


def secret_of(request: web.Request) -> str:
    """What its Authorization header shows; the scheme's case says nothing (RFC 9110, section 11.1)."""
    header = request.headers.get("Authorization", "")
    return header[len(_SCHEME) :].strip(" ") if header[: len(_SCHEME)].lower() == _SCHEME else ""


def login_of(request: web.Request) -> str:
    """The number that a browser's cookie shows, which is empty without one and may be of no login."""
    return request.cookies.get(cookie_of(request), "")


def cookie_of(request: web.Request) -> str:
    """Its name: of the run, since a browser sends cookies to all ports of a host."""
    return f"edgeflock-{request.app[HOST].run}"


def is_open(app: web.Application) -> bool:
    """Whether everybody may take part and look."""
    return REGISTER not in app or app[HOST].config.run.open


def who(app: web.Application, secret: str, login: str = "") -> Caller:
    """Whose secret, or login, it is. Raises Unauthorized where the run is not open."""
    register = app.get(REGISTER)
    try:
        if register is None:
            return NOBODY
        return app[LOGINS].who(login) if login else register.who(secret)
    except Unauthorized:
        if not is_open(app):
            raise
        return NOBODY


@web.middleware
async def authenticate(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A device may take part and ask about the run, a viewer may see all of it, an admin may do anything."""
    door = request.app[DOORS].of(request.transport)
    if door is None:
        return _lost()
    caller, refusal = None, _from_elsewhere(request)
    try:
        caller = caller_of(request)
        refusal = refusal or _forbidden(request, caller)
    except Unauthorized as error:
        if not _for_everybody(request):
            refusal = refusal or problem(error.status, error.code, str(error))
    door.begin(known=caller is not None)
    try:
        refusal = refusal or await _body_is_late(request)
        if refusal is not None:
            refusal.force_close()  # what else it may send is not worth reading
            return refusal
        response = await _in_pace(request, handler)
        if caller is not None and response.status < 400:
            _note(request, caller, door.address)
        return response
    except Unavailable as error:
        return problem(error.status, error.code, str(error))
    except ConnectionError:
        return _lost()
    finally:
        door.end()


def behind_gateway(app: web.Application, bearer: str, path: str, certificate: bytes) -> Caller:
    """Whoever asks a gateway for `path`, and has shown this certificate there, in DER. Raises Unauthorized
    unless devices may, and it is one, and Forbidden without the certificate that the run demands.
    """
    caller = who(app, bearer)
    may = caller.role == "device" or (is_open(app) and caller is NOBODY)
    if not may or not path.startswith(_OF_DEVICES):
        raise Unauthorized("a gateway serves devices that have joined; ask the leader")
    authority = app.get(AUTHORITY)
    if not _may_show(app, caller, None if authority is None else authority.key_in(certificate)):
        raise Forbidden(_CERTIFICATES)
    return caller


def pay(request: web.Request, octets: int) -> None:
    """A device that asks owes so many bytes, as in its session."""
    if (pace := _pace_of(request)) is not None:
        pace.spend(octets, asyncio.get_running_loop().time())


async def _in_pace(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """The answer, once a device has paid for what came before; then it owes this."""
    clock = asyncio.get_running_loop().time
    if (pace := _pace_of(request)) is not None and (wait := pace.wait(began := clock())) > 0:
        try:
            await asyncio.sleep(wait)
        finally:
            pace.held_back += clock() - began
    octets = 0
    try:
        response = await handler(request)
        octets = response.content_length or 0
        return response
    finally:
        pay(request, octets)


def _pace_of(request: web.Request) -> Pace | None:
    """None of operators, and of a session, which looks after itself."""
    with suppress(Unauthorized):
        caller = caller_of(request)
        if caller.role == "device" and request.path != SESSION:
            return request.app[HOST].paces.of(caller.name)
    return None


def _lost() -> web.Response:
    """For a line that has dropped: nobody reads it, and it is no error of the server to be logged."""
    return problem(Unavailable.status, Unavailable.code, "the connection is lost")


def _forbidden(request: web.Request, caller: Caller) -> web.Response | None:
    if _for_everybody(request):
        return None
    role, path = caller.role, request.path
    if path == JOIN:
        why = "" if role in ("joining", "device") else "a token of the role device lets a device join"
    elif not _may_show(request.app, caller, key_shown(request.get_extra_info("ssl_object"))):
        why = _CERTIFICATES
    elif path == GATEWAY:
        let_in = role == "gateway" or is_open(request.app)
        why = (
            "" if let_in else "this needs a token of the role gateway (edgeflock token create --role gateway)"
        )
    elif role == "gateway":
        why = "" if path.startswith(GRAPHS) else "a token of the role gateway is for edgeflock gateway alone"
    elif path == SESSION:
        let_in = role == "device" or (role != "joining" and is_open(request.app))
        why = "" if let_in else "a session is of a device that has joined: edgeflock client join URL TOKEN"
    elif role == "admin":
        why = ""
    elif role == "joining":
        why = "this token lets a device join, and nothing else: edgeflock client join URL TOKEN"
    elif request.method not in _READING:
        why = "this needs a token of the role admin (edgeflock token create --role admin)"
    elif role == "device" and not path.startswith(_OF_DEVICES):
        why = (
            "this needs a token of the role viewer (edgeflock token create --role viewer): devices are not "
            "told of each other"
        )
    else:
        why = ""
    return problem(403, "forbidden", why) if why else None


def _may_show(app: web.Application, caller: Caller, shown: bytes | None) -> bool:
    """Whether the key of the certificate that the caller has shown, or that there is none, goes with who it
    is.
    """
    if not app[HOST].config.run.client_certificates:
        return True
    register = app[REGISTER]
    if caller.role == "device":
        device = register.devices[caller.name]
        return shown is not None and shown in (device.key, device.next_key)
    return shown is None or register.has_key(shown)


def _for_everybody(request: web.Request) -> bool:
    method = "GET" if request.method == "HEAD" else request.method
    return (method, request.path) in OPEN or (method == "GET" and request.path.startswith(ASSETS))


def _from_elsewhere(request: web.Request) -> web.Response | None:
    """Whether a page of another site opens a WebSocket, or acts. Browsers say so, nobody else does."""
    if request.method in _READING and request.headers.get("Upgrade", "").lower() != "websocket":
        return None if request.headers.get("Authorization") else _under_a_strange_name(request)
    origin = request.headers.get("Origin")
    if origin is None:
        # A cookie is a browser's, and a browser says where it comes from.
        without = login_of(request) and not request.headers.get("Authorization")
        return problem(403, "forbidden", "a login goes with an Origin") if without else None
    if request.app[ORIGINS].takes(origin, request.scheme, request.host):
        return None
    return problem(
        403,
        "forbidden",
        f"a page of another site may neither act here nor open a WebSocket: its Origin is {origin!r:.200}, "
        f"and this is {f'{request.scheme}://{request.host}'!r:.200}; run.origins names others that may",
    )


def _under_a_strange_name(request: web.Request) -> web.Response | None:
    """Whether somebody who shows nothing asks for what an open run on this machine shows everybody, by a name
    that is not this machine's: a page elsewhere, whose name now points here.
    """
    run = request.app[HOST].config.run
    if not is_open(request.app) or not is_loopback(run.host) or _for_everybody(request):
        return None
    if request.app[ORIGINS].knows(request.host):
        return None
    return problem(
        403,
        "forbidden",
        f"this server does not go by the name {request.host!r:.200}; run.origins names others that it has",
    )


def note(request: web.Request, caller: Caller, what: str, address: str) -> None:
    """Keep who did it."""
    if (audit := request.app.get(AUDIT)) is not None:
        audit.note(caller.name, what, address=address)


def _note(request: web.Request, caller: Caller, address: str) -> None:
    """What was done is kept. Whoever joins or logs in is noted with its name (joining.py, page.py)."""
    if request.method not in _READING and request.path not in (JOIN, LOGIN, LOGOUT):
        note(request, caller, f"POST {request.path}", address)


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
