"""The aiohttp application: routes, authentication, and what lives as long as the server."""

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from edgeflock.server.api import EVALUATOR, GRAPHS, SERVICES, routes
from edgeflock.server.coordination import Rounds
from edgeflock.server.evaluation import Evaluator
from edgeflock.server.graphs import GraphStore
from edgeflock.server.hosting import HostedRun
from edgeflock.server.registry import Registry
from edgeflock.server.relay import Relay
from edgeflock.server.session import Services, Session
from edgeflock.server.traffic import Traffic
from edgeflock.server.writer import Writer
from edgeflock.shared.config import Config
from edgeflock.shared.errors import EdgeflockError, Unauthorized, Unavailable

log = logging.getLogger(__name__)


def create_app(config: Config, hosted: HostedRun) -> web.Application:
    """The application that serves `hosted`. Serve it with `listening`, so that its traffic is counted."""
    app = web.Application(middlewares=[_authenticate])
    app.add_routes(routes)
    app.router.add_get("/v1/session", _session)

    async def run(app: web.Application) -> AsyncIterator[None]:
        # At least what the devices are known to have cost; what came since the last account is not known.
        past = hosted.history[-1:]
        traffic = Traffic(
            max([sum(a.ingress for a in hosted.accounts), *(e.ingress for e in past)]),
            max([sum(a.egress for a in hosted.accounts), *(e.egress for e in past)]),
        )
        registry = Registry(hosted.token, config.limits.devices, hosted.accounts)
        writer = Writer(hosted.engine, Rounds.of(config.coordination), registry.present)
        relay = Relay(config.injection, config.limits.samples)
        app[SERVICES] = Services(hosted.run, config, hosted.engine, writer, registry, traffic, relay)
        evaluator = app[EVALUATOR] = Evaluator(
            hosted.engine,
            writer,
            registry,
            traffic.total,
            hosted.evaluate,
            config.run.evaluate_every,
            hosted.history,
        )
        app[GRAPHS] = GraphStore(config.model)
        evaluating = asyncio.create_task(evaluator.run())
        # What is loaded by now lives as long as the server: the collector need not walk it again and again.
        gc.freeze()
        yield
        gc.unfreeze()
        evaluating.cancel()
        with suppress(asyncio.CancelledError, Unavailable):
            await evaluating
        with suppress(Unavailable):
            await evaluator.record()
        await writer.close()

    app.cleanup_ctx.append(run)
    app.on_shutdown.append(_end_sessions)
    app.on_shutdown.append(_end_exports)
    return app


@asynccontextmanager
async def listening(app: web.Application, host: str, port: int) -> AsyncIterator[int]:
    """Serve on host:port (0: any free one) while the context lasts. Yields the port."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2)
    await runner.setup()
    try:
        assert runner.server is not None, "set up just now"
        protocol = app[SERVICES].traffic.protocol(runner.server)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(protocol, host, port, backlog=1024)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
    finally:
        await runner.cleanup()


async def serve(config: Config, hosted: HostedRun, ready: Callable[[int], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` gets the port. Raises EdgeflockError if the journal fails."""
    app = create_app(config, hosted)
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    async with listening(app, config.run.host, config.run.port) as port:
        ready(port)
        failed = app[SERVICES].writer.failed
        failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
    if not failed.cancelled() and (error := failed.exception()):
        raise EdgeflockError(
            f"stopped, because updates can no longer be journaled in {config.run.directory}: {error}; "
            "what was acknowledged is safe, start again once the cause is mended"
        ) from error


@web.middleware
async def _authenticate(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    if not request.app[SERVICES].registry.authorised(request.headers.get("Authorization", "")):
        body = {"code": Unauthorized.code, "detail": "send the run's token: Authorization: Bearer TOKEN"}
        return web.json_response(body, status=Unauthorized.status)
    try:
        return await handler(request)
    except Unavailable as error:
        return web.json_response({"code": error.code, "detail": str(error)}, status=error.status)


async def _session(request: web.Request) -> web.StreamResponse:
    return await Session(request.app[SERVICES], request).serve()


async def _end_sessions(app: web.Application) -> None:
    sessions = [d.session for d in app[SERVICES].registry.devices.values() if d.session]
    await asyncio.gather(*(session.leave() for session in sessions))


async def _end_exports(app: web.Application) -> None:
    await app[GRAPHS].close()
