"""The routes of a server of several runs itself: the list of runs, actions on them, metrics and the page."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

from aiohttp import web

from edgeflock.server.connections import ConnectionLimits
from edgeflock.server.connections.forwarding import ForwardedOrigin
from edgeflock.server.connections.traffic import address_of
from edgeflock.server.http.bodies import page_response, problem, read_in_time
from edgeflock.server.http.roles import READ_METHODS
from edgeflock.server.identity import Audit, Caller, peer_certificate
from edgeflock.server.supervision.accounts import Accounts
from edgeflock.server.supervision.metrics import merge_metrics, state_metrics
from edgeflock.server.supervision.processes import RunProcess
from edgeflock.server.supervision.requests import ask
from edgeflock.server.supervision.rows import rows_for_operator, rows_for_stranger
from edgeflock.server.web import Asset, Origins, edition
from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.identity import is_loopback, secret_of
from edgeflock.shared.settings.config import Config

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_LONGEST_BODY = 4096
"""Bytes of a request's body."""

_METRICS_SECONDS = 5.0
"""Seconds for a run's server to give its metrics."""


class Runs(Protocol):
    """The runs of the folder."""

    def all_runs(self) -> list[RunProcess]:
        """Return all runs, in the order of their names."""

    def find(self, name: str) -> RunProcess | None: ...

    async def act(self, action: str, run: RunProcess) -> str:
        """Pause, resume or archive a run, and return what was done. Raises EdgeflockError."""


class OwnRoutes:
    """The handlers, and what each request passes before."""

    def __init__(
        self,
        runs: Runs,
        accounts: Accounts,
        limits: ConnectionLimits,
        origins: Origins,
        page: dict[str, Asset],
        audit: Audit,
        config: Config,
    ) -> None:
        self._runs, self._accounts, self._limits = runs, accounts, limits
        self._origins, self._page, self._audit = origins, page, audit
        self._host, self._request_seconds = config.server.host, config.limits.request_seconds

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._guard], client_max_size=_LONGEST_BODY)
        app.router.add_get("/livez", _get_livez)
        app.router.add_get("/readyz", _get_livez)
        app.router.add_get("/v1/session", _get_session)
        app.router.add_post("/v1/join", _get_session)
        app.router.add_get("/v1/runs", self._get_runs)
        app.router.add_get("/v1/status", self._get_runs)
        app.router.add_get("/v1/runs/{name}", self._get_run)
        app.router.add_post("/v1/runs/{name}/{action:pause|resume|archive}", self._act)
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/v1/login", self._get_login)
        app.router.add_post("/v1/login", self._accounts.log_in)
        app.router.add_post("/v1/logout", self._accounts.log_out)
        app.router.add_get("/", self._get_asset)
        app.router.add_get("/assets/{name}", self._get_asset)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count the request at its connection, refuse pages of other sites, and read the body in time."""
        connection = self._limits.find(request.transport)
        if connection is None:
            return problem(503, "unavailable", "the connection is lost")
        connection.begin(authenticated=False)
        try:
            response = await self._answer(request, handler)
        except web.HTTPException as error:
            error.force_close()  # the next request may be for a run
            raise
        finally:
            connection.end()
        response.force_close()
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in READ_METHODS:
            headers, at = request.headers, (request.scheme, request.host)
            if reason := self._origins.foreign_reason(headers, *at, has_login="Cookie" in headers):
                return problem(403, "forbidden", reason)
            await read_in_time(request, self._request_seconds)
        return await handler(request)

    def _caller(self, request: web.Request) -> Caller | None:
        return self._accounts.identify(request.headers)

    async def _rows(self, request: web.Request) -> list[dict[str, Any]]:
        if self._caller(request) is not None:
            return await rows_for_operator(self._runs.all_runs())
        headers = {
            name: request.headers[name] for name in ("Authorization", "Host") if name in request.headers
        }
        assert request.transport is not None, "a request that is being handled has one"
        certificate = peer_certificate(request.get_extra_info("ssl_object"))
        origin = ForwardedOrigin(
            address_of(request.transport), 0, request.secure, certificate, is_internal=True
        )
        # As in a run's server: a page elsewhere whose name now points to this machine gets nothing.
        shows_open = self._origins.is_own(request.host) or not is_loopback(self._host)
        return await rows_for_stranger(self._runs.all_runs(), origin, headers, shows_open=shows_open)

    async def _get_runs(self, request: web.Request) -> web.Response:
        """The runs that the caller may see, as JSON: {"runs": [...]}."""
        rows = await self._rows(request)
        if not rows and secret_of(request.headers):
            return problem(401, "unauthorized", "neither this server nor a run of it knows this token")
        return web.json_response({"runs": rows})

    async def _get_run(self, request: web.Request) -> web.Response:
        """Send a browser on to the page of the run."""
        name = request.match_info["name"]
        if self._runs.find(name) is None:
            return problem(404, "unknown-run", f"this server has no run {name!r:.80}")
        raise web.HTTPPermanentRedirect(f"/v1/runs/{name}/")

    async def _act(self, request: web.Request) -> web.Response:
        """Pause, resume or archive a run."""
        caller = self._caller(request)
        if caller is None or caller.role != "admin":
            status, code = (401, "unauthorized") if caller is None else (403, "forbidden")
            return problem(status, code, "this needs the server's own token of the role admin, in its folder")
        name, action = request.match_info["name"], request.match_info["action"]
        run = self._runs.find(name)
        if run is None:
            return problem(404, "unknown-run", f"this server has no run {name!r:.80}")
        try:
            done = await self._runs.act(action, run)
        except EdgeflockError as error:
            return problem(409, "conflict", str(error))
        self._audit.note(caller.name, f"POST {request.path}", address=request.remote)
        return web.json_response({"name": name, "state": run.state, "detail": done})

    async def _get_metrics(self, request: web.Request) -> web.Response:
        """The metrics of all runs, with the label run="NAME"."""
        if self._caller(request) is None:
            return problem(401, "unauthorized", "this needs a viewer's token of the server, not of a run")
        runs = self._runs.all_runs()
        answers = await asyncio.gather(*map(_metrics_of, runs))
        texts = {run.file.name: text for run, text in zip(runs, answers, strict=True)}
        states = state_metrics({run.file.name: run.state == "running" for run in runs})
        merged = await asyncio.to_thread(merge_metrics, texts)
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=(states + merged).encode(), headers=headers)

    async def _get_login(self, request: web.Request) -> web.Response:
        """{"role", "login", "edition"}: what the caller may do, if by a login, and which page this is."""
        caller = self._caller(request)
        login = caller is not None and not secret_of(request.headers)
        role = None if caller is None else caller.role
        return web.json_response({"role": role, "login": login, "edition": edition(self._page)})

    async def _get_asset(self, request: web.Request) -> web.Response:
        """A file of the page, or the list of runs."""
        return page_response(request, self._page, request.match_info.get("name", "runs.html"))


async def _get_session(request: web.Request) -> web.Response:
    """Tell a device, or one that wants to join, that its address names no run."""
    return problem(300, "several-runs", "several runs are here: add /v1/runs/NAME, and use a token of it")


async def _get_livez(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _metrics_of(run: RunProcess) -> str:
    if not run.unavailable_reason:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_METRICS_SECONDS):
                code, body = await ask(run.proxy.socket_path, "/metrics")
            if code == 200:
                return body.decode("utf-8", "replace")
    return ""
