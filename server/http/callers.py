"""Find who sends a request, and check the certificate that the caller has shown."""

from aiohttp import web

from edgeflock.server.connections.forwarding import forwarded_origin
from edgeflock.server.http.keys import AUDIT, AUTHORITY, HOST, LOGINS, REGISTER
from edgeflock.server.http.roles import JOIN, SESSION, access_of, device_paths
from edgeflock.server.identity import NOBODY, Caller, peer_key
from edgeflock.shared.errors import Forbidden, Unauthorized
from edgeflock.shared.identity import secret_of
from edgeflock.shared.protocol.messages import IN_FIRST_RECORD

CERTIFICATES = (
    "server.client_certificates: a device shows the certificate that it got when it joined, and nobody one "
    "of a device that was revoked"
)

_CALLER = web.RequestKey("caller", Caller)
_REFUSAL = web.RequestKey("refusal", Unauthorized)


def find_caller(request: web.Request) -> Caller:
    """Return who sends this request, by its secret, or else by a browser's login.

    A server of several runs says so of a caller with a token of its own.

    Raises Unauthorized where the run is not open and the secret is unknown.
    """
    if (origin := forwarded_origin(request.transport)) is not None and origin.role:
        return Caller("admin" if origin.role == "admin" else "viewer", origin.account)
    secret, login = secret_of(request.headers), login_of(request)
    return authenticate(request.app, secret, "" if secret else login)


def remember_caller(request: web.Request) -> None:
    """Find the caller and store it, or why there is none, for `caller_of`."""
    if awaits_credential(request):  # a login that a browser adds says nothing of the device
        request[_REFUSAL] = Unauthorized("the device has shown no credential yet")
        return
    try:
        request[_CALLER] = find_caller(request)
    except Unauthorized as error:
        request[_REFUSAL] = error


def caller_of(request: web.Request) -> Caller:
    """Return the stored caller of this request. Raises Unauthorized if there is none."""
    if _REFUSAL in request:
        raise request[_REFUSAL]
    return request[_CALLER]


def has_caller(request: web.Request) -> bool:
    """Whether `caller_of` has an answer."""
    return _CALLER in request


def refusal_of(request: web.Request, caller: Caller) -> str:
    """Why the caller may not use the route: its role, or the lack of a certificate. Empty: it may."""
    access, app = access_of(request), request.app
    if access is not JOIN and not has_certificate(
        app, caller, peer_key(request.get_extra_info("ssl_object"))
    ):
        return CERTIFICATES
    return access.refusal(caller.role, is_open(app))


def awaits_credential(request: web.Request) -> bool:
    """Whether this is the session of a device that will show its credential in its first record."""
    if access_of(request) is not SESSION or "Authorization" in request.headers:
        return False
    offered = ",".join(request.headers.getall("Sec-WebSocket-Protocol", ()))
    return IN_FIRST_RECORD in (name.strip() for name in offered.split(","))


def login_of(request: web.Request) -> str:
    """The login number in a browser's cookie. It is empty without a cookie, and may be invalid."""
    return request.cookies.get(cookie_of(request), "")


def has_login(request: web.Request) -> bool:
    """Whether a browser's login comes along, here or at the server of several runs."""
    origin = forwarded_origin(request.transport)
    return bool(login_of(request)) or (origin is not None and bool(origin.role))


def cookie_of(request: web.Request) -> str:
    """The cookie's name. It contains the run, since a browser sends cookies to all ports of a host."""
    return f"edgeflock-{request.app[HOST].terms.run}"


def is_open(app: web.Application) -> bool:
    """Whether everybody may take part in the run and watch it."""
    return app[HOST].config.server.open


def authenticate(app: web.Application, secret: str, login: str = "") -> Caller:
    """Return the owner of a secret or a login. Raises Unauthorized where the run is not open."""
    try:
        return app[LOGINS].identify(login) if login else app[REGISTER].identify(secret)
    except Unauthorized:
        if not is_open(app):
            raise
        return NOBODY


def authenticate_behind_gateway(app: web.Application, bearer: str, path: str, certificate: bytes) -> Caller:
    """Return the caller that asks a gateway for `path` and has shown it this certificate, in DER.

    Raises Unauthorized if it may not, Forbidden without the certificate that the run demands.
    """
    caller = authenticate(app, bearer)
    may = caller.role == "device" or (is_open(app) and caller is NOBODY)
    if not may or not path.startswith(device_paths(app)):
        raise Unauthorized("a gateway serves devices that have joined; ask the leader")
    authority = app.get(AUTHORITY)
    if not has_certificate(app, caller, None if authority is None else authority.verified_key(certificate)):
        raise Forbidden(CERTIFICATES)
    return caller


def has_certificate(app: web.Application, caller: Caller, key: bytes | None) -> bool:
    """Whether the caller's certificate, or its lack, fits. `key` is the certificate's, if there is one."""
    demanded = app[HOST].config.server.client_certificates
    if not demanded:
        return True
    register = app[REGISTER]
    if caller.role == "device":
        device = register.devices[caller.name]
        return key is not None and key in (device.key, device.next_key)
    if key is None:  # the TLS of a server of several runs asks for certificates, and demands none
        is_operator_of_all = caller is not NOBODY and not caller.digest
        return demanded == "devices" or is_operator_of_all
    return register.has_key(key)


def note(request: web.Request, name: str, action: str, address: str | None) -> None:
    """Write to the audit log what a caller of this name did."""
    request.app[AUDIT].note(name, action, address=address)
