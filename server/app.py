"""The aiohttp application: routes, authentication, and what lives as long as the server."""

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aiohttp import web

from edgeflock.server import actions, api, metrics
from edgeflock.server.access import authenticate
from edgeflock.server.coordination import Rounds
from edgeflock.server.evaluation import Evaluator
from edgeflock.server.feed import Feed, flat_settings
from edgeflock.server.graphs import GraphStore
from edgeflock.server.hosting import HostedRun
from edgeflock.server.hub import Hub
from edgeflock.server.journal import Evaluation
from edgeflock.server.keys import EVALUATOR, FEED, GRAPHS, ROLES, SERVICES, WATCHERS
from edgeflock.server.registry import Registry
from edgeflock.server.relay import Relay
from edgeflock.server.roles import Roles
from edgeflock.server.session import Services, Session
from edgeflock.server.trackers import Tracked, Trackers
from edgeflock.server.traffic import Traffic
from edgeflock.server.watchers import Watchers
from edgeflock.server.writer import Writer
from edgeflock.shared.config import Config
from edgeflock.shared.errors import EdgeflockError, Unavailable

log = logging.getLogger(__name__)


def create_app(config: Config, hosted: HostedRun) -> web.Application:
    """The application that serves `hosted`. Serve it with `listening`, so that its traffic is counted."""
    app = web.Application(middlewares=[authenticate])
    app.add_routes([*api.routes, *actions.routes, *metrics.routes])
    app.router.add_get("/v1/session", _session)
    app[ROLES] = Roles(hosted.token, hosted.admin_token)

    async def run(app: web.Application) -> AsyncIterator[None]:
        # At least what the devices are known to have cost; what came since the last account is not known.
        past = hosted.history[-1:]
        traffic = Traffic(
            max([sum(a.ingress for a in hosted.accounts), *(e.ingress for e in past)]),
            max([sum(a.egress for a in hosted.accounts), *(e.egress for e in past)]),
        )
        registry = Registry(config.limits.devices, hosted.accounts)
        hub = Hub(lambda: hosted.engine.version, traffic.total)
        writer = Writer(hosted.engine, Rounds.of(config.coordination), registry.present, hub.round_ended)
        relay = Relay(config.injection, config.limits.samples)
        services = Services(hosted.run, config, hosted.engine, writer, registry, traffic, relay, hub)
        loop = asyncio.get_running_loop()

        def given_up(text: str) -> None:
            loop.call_soon_threadsafe(hub.note, "warning", None, text)

        tracked = Tracked(hosted.run, Path(config.run.directory), flat_settings(services))
        trackers = Trackers(config.run.trackers, tracked, given_up)

        def told(evaluation: Evaluation | None) -> None:
            _evaluated(hub, evaluation)
            if evaluation is not None:
                trackers.write(evaluation)

        evaluator = Evaluator(
            hosted.engine,
            writer,
            registry,
            traffic.total,
            hosted.evaluate,
            config.run.evaluate_every,
            hosted.history,
            told,
        )
        feed = Feed(services, evaluator)
        app[SERVICES], app[EVALUATOR], app[FEED] = services, evaluator, feed
        app[WATCHERS] = Watchers(hub, feed, config.limits.watchers)
        app[GRAPHS] = GraphStore(config.model)
        working = [
            asyncio.create_task(evaluator.run()),
            asyncio.create_task(hub.run(lambda: evaluator.state)),
        ]
        # What is loaded by now lives as long as the server: the collector need not walk it again and again.
        gc.freeze()
        yield
        gc.unfreeze()
        for task in working:
            task.cancel()
            with suppress(asyncio.CancelledError, Unavailable):
                await task
        with suppress(Unavailable):
            await evaluator.record()
        await writer.close()
        await asyncio.to_thread(trackers.close)

    app.cleanup_ctx.append(run)
    app.on_shutdown.append(_end_sessions)
    app.on_shutdown.append(_end_exports)
    return app


def _evaluated(hub: Hub, evaluation: Evaluation | None) -> None:
    if evaluation is None:
        hub.note("warning", None, "the model's evaluation failed; the server's log says why")
        return
    loss = "not finite" if evaluation.loss is None else f"{evaluation.loss:.4f}"
    accuracy = "" if evaluation.accuracy is None else f", accuracy {evaluation.accuracy:.2%}"
    hub.note("evaluated", None, f"version {evaluation.version:,}: loss {loss}{accuracy}")


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


async def _session(request: web.Request) -> web.StreamResponse:
    return await Session(request.app[SERVICES], request).serve()


async def _end_sessions(app: web.Application) -> None:
    app[SERVICES].writer.leave_round_open()
    sessions = [d.session for d in app[SERVICES].registry.devices.values() if d.session]
    await asyncio.gather(app[WATCHERS].close(), *(session.leave() for session in sessions))


async def _end_exports(app: web.Application) -> None:
    await app[GRAPHS].close()
