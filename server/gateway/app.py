"""A gateway's HTTP application: the device protocol, without the routes of operators."""

import asyncio
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import aiohttp
from aiohttp import web
from yarl import URL

from edgeflock.server.connections import ConnectionLimits, GuardedConnection, Traffic
from edgeflock.server.connections.listening import listen_on
from edgeflock.server.gateway.admission import GatewayAdmission
from edgeflock.server.gateway.leaders import ClientCertificate, Leaders, read_body
from edgeflock.server.gateway.upstream import Upstream
from edgeflock.server.http.bodies import add_etag, octets_response, problem, send_file
from edgeflock.server.identity import Certificate, demand, peer_certificate, pin_of_file, server_tls
from edgeflock.server.sessions import Session, SessionContext
from edgeflock.shared.errors import ConfigError, Forbidden, Refused, Unavailable
from edgeflock.shared.identity import is_loopback, secret_of
from edgeflock.shared.protocol import gateway
from edgeflock.shared.protocol.frames import RunState
from edgeflock.shared.settings.config import Config
from edgeflock.shared.settings.limits import LimitSettings

_LONGEST_BODY = 1 << 16
"""The most bytes of a device's request to join."""


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """The address that a gateway listens at, and its certificate."""

    host: str = "127.0.0.1"
    port: int = 8470
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False

    def tls_and_pin(self) -> tuple[ssl.SSLContext | None, bytes]:
        """Return (TLS to listen with, pin of the public key that devices see). Raises ConfigError."""
        if self.certificate is not None and self.key is not None:
            return server_tls(Certificate(self.certificate, self.key))
        if self.key is not None:
            raise ConfigError("--key needs --certificate too")
        if not self.insecure and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host}: devices would connect without TLS; give --certificate and --key, "
                "those of the leader, or allow it with --insecure"
            )
        return None, b"" if self.certificate is None else pin_of_file(self.certificate)


class Gateway:
    """The gateway of one process. Use `serving`."""

    def __init__(
        self,
        leaders: str,
        token: str,
        name: str,
        address: GatewayAddress,
        client_certificate: ClientCertificate | None = None,
        *,
        insecure: bool = False,
    ) -> None:
        """Without a `name` it is host name and port. Raises ConfigError for unusable certificates or URLs."""
        self.address, self.name = address, name
        self._tls, self._pin = address.tls_and_pin()
        self._authority = ""
        """The authority whose certificates devices may show, in PEM."""
        self.leaders = Leaders(leaders, token, client_certificate, insecure=insecure)
        self.upstream = Upstream(self.leaders, name, self._check_fit)
        self.traffic = Traffic()
        self._context: SessionContext | None = None
        self._connection_limits = ConnectionLimits(LimitSettings())
        """The leader's limits apply once they are known."""
        self._following: asyncio.Task[None] | None = None

    def _check_fit(self, sync: gateway.Sync, config: Config) -> None:
        """Raise ConfigError if the leader's devices could not trust the gateway, or it cannot check them."""
        certificate = self.address.certificate
        if certificate is not None and sync.pin and sync.pin != self._pin:
            raise ConfigError(
                f"--certificate {certificate} has another public key than the leader's, which tokens name; "
                "give certificate.pem and certificate-key.pem of the leader's server.directory, or its "
                "server.certificate and server.key"
            )

        self._request_certificates(sync.authority, config.server.client_certificates)

    def _request_certificates(self, authority: str, clients: str) -> None:
        """Ask devices for certificates from their next handshake on, as the leader does."""
        tls = self._tls
        if tls is None and authority:
            raise ConfigError(
                f"server.client_certificates = {clients!r}: devices show certificates in TLS, which this "
                "gateway does not speak; give --certificate and --key"
            )
        if tls is None:
            return
        if self._authority not in ("", authority) and authority:
            raise ConfigError(
                "the leader gives devices certificates of another authority than before; start anew"
            )
        tls.verify_mode = ssl.CERT_NONE
        if authority:
            self._authority = authority
            demand(tls, authority, required=clients == "everybody")

    @property
    def context(self) -> SessionContext:
        """The context of sessions. Raises Unavailable while there is no leader."""
        mirror, relay = self.upstream.mirror, self.upstream.relay
        if mirror is None or relay is None:
            raise Unavailable("this gateway has no leader; try again, or elsewhere")
        if self._context is None or self._context.engine is not mirror:
            self._context = mirror.context(self.traffic, relay)
            self._connection_limits.limits = mirror.config.limits
        return self._context

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Serve devices while the context lasts, whenever there is a leader. Yields the port.

        Raises EdgeflockError if it cannot listen.
        """
        address, connection_limits = self.address, self._connection_limits
        listener = listen_on(
            self._app(), connection_limits, lambda: self.traffic, address.host, address.port, self._tls
        )
        async with listener as port:
            if not self.name:
                self.name = self.upstream.name = f"{socket.gethostname()}:{port}"
            following = self._following = asyncio.create_task(self.upstream.run())
            try:
                yield port
            finally:
                following.cancel()
                await asyncio.wait([following])

    async def serve_until(self, event: asyncio.Event) -> None:
        """Wait for `event`. Raises ConfigError as soon as no leader accepts this gateway."""
        assert self._following is not None, "it serves"
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait((waiting, self._following), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._following.done():
            self._following.result()

    @property
    def status(self) -> str:
        """The gateway's status, for its supervisor."""
        context = self._context
        if self.upstream.mirror is None or context is None:
            return "waits for its leader"
        devices, version = len(self.upstream.devices), context.published.version
        return f"{devices} device{'s' * (devices != 1)} of run {context.terms.run} at version {version}"

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=_LONGEST_BODY)
        for path in ("/", "/train"):
            app.router.add_get(path, self._page)
        app.router.add_get("/livez", _livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/v1/session", self._session)
        app.router.add_get("/v1/start", self._start)
        app.router.add_get("/v1/base", self._base)
        app.router.add_get("/v1/status", self._status)
        app.router.add_get("/v1/graphs/{kind:step|evaluation}", self._graph)
        app.router.add_get("/v1/model.{format:onnx|safetensors}", self._model)
        app.router.add_post("/v1/join", self._join)
        app.router.add_route("*", "/v1/{path:(?!runs/).*}", self._misdirected)
        app.on_shutdown.append(self._end_sessions)
        return app

    async def _end_sessions(self, app: web.Application) -> None:
        await self.upstream.close_sessions()

    def _connection(self, request: web.Request) -> GuardedConnection | None:
        return self._connection_limits.find(request.transport)

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        connection = self._connection(request)
        if connection is None:
            return problem(Unavailable.status, Unavailable.code, "the connection is lost")
        connection.begin(authenticated=False)
        try:
            if not self._has_certificate(request):
                return problem(
                    403, Forbidden.code, "server.client_certificates: TLS begins with a certificate here"
                )
            if "Origin" in request.headers:  # browsers send it, devices do not
                return problem(403, "forbidden", self._for_browsers())
            return await handler(request)
        except Refused as error:
            text = str(error).replace("ask the leader", f"ask the leader, {self.leaders.url}")
            refusal = problem(error.status, error.code, text)
            refusal.force_close()
            return refusal
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            return problem(Unavailable.status, Unavailable.code, f"the leader does not answer: {error}")
        finally:
            connection.end()

    def _has_certificate(self, request: web.Request) -> bool:
        """Whether TLS began with a certificate, if required: TLS may have begun before there was a leader."""
        mirror = self.upstream.mirror
        if mirror is None or mirror.config.server.client_certificates != "everybody":
            return True
        return bool(peer_certificate(request.get_extra_info("ssl_object")))

    def _for_browsers(self) -> str:
        url = str(self.leaders.url).rstrip("/")
        mirror = self.upstream.mirror
        browsers = mirror is not None and mirror.config.server.browsers
        train = f"they take part at {url}/train; " if browsers else ""
        return f"a gateway is not for browsers: {train}the run is shown at {url}"

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text=f"{self._for_browsers()}\n", status=404)

    async def _misdirected(self, request: web.Request) -> web.Response:
        return problem(
            421, "misdirected", f"a gateway has no {request.path}: ask its leader, {self.leaders.url}"
        )

    async def _readyz(self, request: web.Request) -> web.Response:
        reason = "" if self.upstream.mirror is not None else "this gateway has no leader"
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def _session(self, request: web.Request) -> web.StreamResponse:
        context, connection = self.context, self._connection(request)
        if connection is None:
            raise ConnectionResetError("the connection is lost")
        with self.upstream.ticket() as admission:
            await self._identify(request, admission)
            return await Session(context, self.upstream, request, connection, admission).serve()

    async def _identify(self, request: web.Request, admission: GatewayAdmission) -> None:
        """Let the leader identify the requester. Raises Unauthorized or Forbidden."""
        certificate = peer_certificate(request.get_extra_info("ssl_object"))
        await admission.identify(secret_of(request.headers), request.path, certificate)
        if (connection := self._connection(request)) is not None:
            connection.begin(authenticated=True)

    async def _authenticate(self, request: web.Request) -> SessionContext:
        """Authenticate a request and return the context. Raises Unauthorized or Forbidden."""
        context = self.context
        with self.upstream.ticket() as admission:
            await self._identify(request, admission)
        return context

    async def _status(self, request: web.Request) -> web.Response:
        """Return the public state of the run, and who knows more."""
        context = await self._authenticate(request)
        published = context.published
        state: RunState = "training"
        if published.diverged or published.complete:
            state = "diverged" if published.diverged else "finished"
        return web.json_response({**context.public_status(state), "leader": str(self.leaders.url)})

    async def _start(self, request: web.Request) -> web.StreamResponse:
        """Return the file of the first model. The bytes count as traffic of ?device=NAME."""
        await self._authenticate(request)
        sync = self.upstream.sync
        if sync is None or not sync.first:
            return problem(404, "no-start", "devices make the first model of this run: the Welcome says how")
        response = await send_file(
            request, BytesIO(sync.first), hashlib.sha256(sync.first).hexdigest(), len(sync.first)
        )
        for device in self.upstream.devices:
            if device.name == request.query.get("device"):
                device.connection.earlier_traffic.egress += response.content_length or 0
        return response

    async def _base(self, request: web.Request) -> web.StreamResponse:
        """Return the frozen base, or a range of it."""
        return await self._file(request, self.leaders.url / "v1/base", fixed=True, whole=False)

    async def _graph(self, request: web.Request) -> web.StreamResponse:
        """Return a training graph."""
        url = self.leaders.url / "v1/graphs" / request.match_info["kind"]
        response = await self._file(request, url, fixed=True)
        if response.status == 200:
            response.enable_compression()
        return response

    async def _model(self, request: web.Request) -> web.StreamResponse:
        """Return the leader's best or last model as a file."""
        version = request.query.get("version", "last")
        if version not in ("best", "last"):
            await self._authenticate(request)
            return problem(400, "bad-version", f"version={version!r:.40}: a gateway has best and last")
        url = self.leaders.url / f"v1/model.{request.match_info['format']}" % {"version": version}
        return await self._file(request, url)

    async def _file(
        self, request: web.Request, url: URL, *, fixed: bool = False, whole: bool = True
    ) -> web.StreamResponse:
        """Return a file of the leader, which is requested once if it is `fixed`."""
        await self._authenticate(request)
        upstream = self.upstream
        found = self.leaders.fetch(upstream.http, url, fixed=fixed)
        status, headers, octets = await upstream.run_while_led(found)
        if status != 200:
            return web.Response(status=status, headers=dict(headers), body=octets)
        digest = headers["ETag"].strip('"')
        if not whole:
            return await send_file(request, BytesIO(octets), digest, len(octets))
        return octets_response(octets, 200, add_etag(request, digest, dict(headers)))

    async def _join(self, request: web.Request) -> web.StreamResponse:
        """Forward a request to join to the leader, which decides."""
        async with asyncio.timeout(self.context.config.limits.request_seconds):
            octets = await request.read()
        url = self.leaders.url / "v1/join"
        headers = {"Authorization": request.headers.get("Authorization", "")}

        async def forward() -> web.Response:
            async with self.upstream.http.post(url, data=octets, headers=headers) as answer:
                return web.Response(
                    status=answer.status, body=await read_body(answer), content_type=answer.content_type
                )

        return await self.upstream.run_while_led(forward())


async def _livez(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")
