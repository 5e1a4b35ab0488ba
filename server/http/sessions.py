"""The WebSockets of devices and of gateways. docs/protocol.md is the reference."""

from functools import partial

from aiohttp import web

from edgeflock.server.http.bodies import bad_request
from edgeflock.server.http.callers import (
    authenticate,
    authenticate_behind_gateway,
    awaits_credential,
    caller_of,
    refusal_of,
)
from edgeflock.server.http.keys import AUDIT, CONNECTION, GATEWAYS, HOST, PIN, REGISTER, WRITER
from edgeflock.server.http.roles import GATEWAY, SESSION, allows
from edgeflock.server.identity import Caller, SessionAuthenticator
from edgeflock.server.sessions import GatewayConnection, ServerAdmission, Session
from edgeflock.shared.errors import Unauthorized
from edgeflock.shared.identity import names

routes = web.RouteTableDef()


@routes.get("/v1/session")
@allows(SESSION)
async def serve_session(request: web.Request) -> web.StreamResponse:
    """The session of a device that has joined, as a WebSocket."""
    app, connection = request.app, request[CONNECTION]
    session = partial(Session, app[HOST], app[WRITER], request, connection)
    if not awaits_credential(request):
        return await session(*_admission_of(app, caller_of(request))).serve()

    def identify(credential: str) -> tuple[ServerAdmission, bytes]:
        caller = authenticate(app, credential)
        if reason := refusal_of(request, caller):
            raise Unauthorized(reason)
        connection.begin(authenticated=True)
        return _admission_of(app, caller)

    return await session(ServerAdmission(app[HOST], app[WRITER]), identify=identify).serve()


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


def _admission_of(app: web.Application, caller: Caller) -> tuple[ServerAdmission, bytes]:
    """Return (the admission of this caller's session, the digest of its credential)."""
    authenticator = _authenticator_of(app, caller)
    credential = b"" if authenticator is None else authenticator.credential
    return ServerAdmission(app[HOST], app[WRITER], authenticator), credential


def _admit(app: web.Application, bearer: str, path: str, certificate: bytes) -> SessionAuthenticator | None:
    """Return the authenticator of a caller behind a gateway, as `GatewayConnection` expects."""
    return _authenticator_of(app, authenticate_behind_gateway(app, bearer, path, certificate))


def _authenticator_of(app: web.Application, caller: Caller) -> SessionAuthenticator | None:
    """Return the authenticator for this caller's session; None if the caller is not a device."""
    if caller.role != "device":
        return None
    return SessionAuthenticator(app[REGISTER], caller, app[PIN], app[AUDIT])
