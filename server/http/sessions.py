"""The WebSockets of devices and of gateways. docs/protocol.md is the reference."""

from functools import partial

from aiohttp import web

from edgeflock.server.http.bodies import bad_request
from edgeflock.server.http.callers import authenticate_behind_gateway, caller_of
from edgeflock.server.http.keys import AUDIT, CONNECTION, GATEWAYS, HOST, PIN, REGISTER, WRITER
from edgeflock.server.http.roles import GATEWAY, SESSION, allows
from edgeflock.server.identity import Caller, SessionAuthenticator
from edgeflock.server.sessions import GatewayConnection, ServerAdmission, Session
from edgeflock.shared.identity import names

routes = web.RouteTableDef()


@routes.get("/v1/session")
@allows(SESSION)
async def serve_session(request: web.Request) -> web.StreamResponse:
    """The session of a device that has joined, as a WebSocket."""
    connection, host, writer = request[CONNECTION], request.app[HOST], request.app[WRITER]
    entry = _authenticator_of(request.app, caller_of(request))
    admission = ServerAdmission(host, writer, entry)
    credential = b"" if entry is None else entry.credential
    return await Session(host, writer, request, connection, admission, credential).serve()


@routes.get("/v1/gateway")
@allows(GATEWAY)
async def serve_gateway(request: web.Request) -> web.StreamResponse:
    """The line of a gateway, as a WebSocket."""
    connection, gateways = request[CONNECTION], request.app[GATEWAYS]
    name = request.query.get("name", "")
    if fault := names.fault(name):
        raise bad_request(f"name {fault}")
    try:
        mark = bytes.fromhex(request.query.get("mark", ""))
    except ValueError as error:
        raise bad_request("mark must be bytes in hexadecimal digits") from error
    admit = partial(_admit, request.app)
    credential = caller_of(request).digest
    line = GatewayConnection(
        gateways.host, gateways.writer, admit, request, connection, name, mark, credential
    )
    return await gateways.serve(line)


def _admit(
    app: web.Application, bearer: str, path: str, certificate: bytes
) -> tuple[str, str, SessionAuthenticator | None]:
    """Return (role, name, authenticator) of a caller behind a gateway, as `GatewayConnection` expects."""
    caller = authenticate_behind_gateway(app, bearer, path, certificate)
    return caller.role, caller.name, _authenticator_of(app, caller)


def _authenticator_of(app: web.Application, caller: Caller) -> SessionAuthenticator | None:
    """Return the authenticator for this caller's session; None if the caller is not a device."""
    if caller.role != "device":
        return None
    return SessionAuthenticator(app[REGISTER], caller, app[PIN], app.get(AUDIT))
