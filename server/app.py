"""The aiohttp application: its routes, its authentication and the objects that live as long as the server."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from edgeflock.server.connections import ConnectionLimits, Traffic
from edgeflock.server.connections.listening import listen_on
from edgeflock.server.coordination import Push
from edgeflock.server.database import JournalLost, redact
from edgeflock.server.engine import Accepted
from edgeflock.server.engine.welcome import welcome
from edgeflock.server.evaluation.best_model import info_of
from edgeflock.server.evaluation.evaluator import Evaluator
from edgeflock.server.findings import AgreementTracker
from edgeflock.server.hosting.background import Background
from edgeflock.server.hosting.run import HostedRun
from edgeflock.server.hosting.standby import watch_lease
from edgeflock.server.http import (
    actions,
    joining,
    keys,
    metrics,
    models,
    page,
    sessions,
    status,
    training_page,
)
from edgeflock.server.http.middleware import MIDDLEWARES, close_forwarded, share_answer
from edgeflock.server.http.model_exports import ModelExports
from edgeflock.server.http.revocations import enforce
from edgeflock.server.http.watchers import Watchers
from edgeflock.server.identity import Logins
from edgeflock.server.monitoring.feed import Feed, flat_settings
from edgeflock.server.monitoring.guarding import GuardRunner
from edgeflock.server.monitoring.health import RunHealth
from edgeflock.server.monitoring.listeners import Listeners
from edgeflock.server.monitoring.trackers import RunInfo, Trackers
from edgeflock.server.roster import Hub, RateLimiters, Registry, Relay
from edgeflock.server.sessions import Gateways, RunHost, SecureSums, Writer
from edgeflock.server.training_graph.served import GraphStore
from edgeflock.server.web import LoginAttempts, Origins, assets, missing_libraries, training_assets
from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.settings.config import Config

log = logging.getLogger(__name__)

BACKGROUND = web.AppKey("background", Background)


def create_app(
    config: Config, hosted: HostedRun, on_failure: Callable[[], None] = lambda: None
) -> web.Application:
    """Create the application that serves `hosted`. Serve it with `listen`, which counts its traffic.

    `on_failure` is called if the server cannot continue. app[BACKGROUND].failure holds the cause.
    """
    app = web.Application(middlewares=MIDDLEWARES)
    app.add_routes(
        [
            *(*status.routes, *actions.routes, *models.routes, *metrics.routes),
            *(*sessions.routes, *joining.routes, *page.routes, *training_page.routes),
        ]
    )
    app[keys.PIN], app[keys.PAGE_PATH] = hosted.pin, hosted.path
    app[keys.REGISTER], app[keys.LOGINS] = hosted.register, Logins(hosted.register)
    app[keys.AUDIT] = hosted.audit
    if hosted.authority is not None:
        app[keys.AUTHORITY] = hosted.authority
    app[keys.CONNECTION_LIMITS] = ConnectionLimits(config.limits)
    app[keys.ASSETS], app[keys.ATTEMPTS] = assets(), LoginAttempts()
    if config.server.browsers:
        app[keys.TRAINING] = training_assets()
        if missing := missing_libraries():
            log.warning("server.browsers: %s", missing)
    app[keys.ORIGINS] = Origins.from_names(config.server.origins, config.server.host)

    adapted, shape = hosted.model.adapted, hosted.model.input
    info = info_of(config.model, hosted.run, hosted.engine.layout, shape, hosted.description, adapted)
    app[keys.MODEL_EXPORTS] = ModelExports(info)

    async def run(app: web.Application) -> AsyncIterator[None]:
        engine = hosted.engine
        # The larger of the accounts' sum and the last evaluation. Traffic after the last account is unknown.
        past = hosted.history[-1:]
        traffic = Traffic(
            max([sum(a.ingress for a in hosted.accounts), *(e.ingress for e in past)]),
            max([sum(a.egress for a in hosted.accounts), *(e.egress for e in past)]),
        )
        registry = Registry(config.limits.devices, hosted.accounts)
        for name, order in hosted.register.orders.items():
            registry.restore_order(name, order.reason, dropped=order.dropped)
        hub = Hub(lambda: engine.published.version, traffic.total)

        async def end(reason: str) -> None:
            await writer.call(lambda: engine.steering.end(reason))
            writer.wake()

        listeners = Listeners(
            hosted.callbacks, lambda: ((d.id, d.name) for d in registry.devices.values()), end, hosted.history
        )

        def note(number: int, text: str) -> None:
            device = next((one for one in registry.devices.values() if one.id == number), None)
            hub.note("warning", device, text)

        def on_update(push: Push, accepted: Accepted) -> None:
            listeners.on_update(push, accepted)
            guarding.record(push, accepted)

        writer = Writer(engine, hub.note_round, on_update, lambda: gateways.publish())
        guarding = GuardRunner(engine, writer, hosted.model.trusted_gradients, note)
        sums = None
        if config.coordination.traits.private:
            sums = SecureSums(hosted.run, config, engine, writer, note)
        relay = Relay(config.injection, config.limits.samples)
        paces = RateLimiters(config.limits)
        described = shape, hosted.description, hosted.model.app, hosted.held_out
        terms = welcome(
            *(hosted.run, config, engine.layout, engine.start, *described, hosted.model.personal, hosted.base)
        )
        host = RunHost(
            config=config,
            engine=engine,
            hub=hub,
            traffic=traffic,
            relay=relay,
            rate_limiters=paces,
            terms=terms,
            registry=registry,
            sums=sums,
            extra_tensors=hosted.model.extras,
            adapted=adapted,
        )
        signer = hosted.authority if config.server.client_certificates else None
        authority = "" if signer is None else signer.pem
        gateways = app[keys.GATEWAYS] = Gateways(host, writer, hosted.pin, authority)
        on_evaluation, close_trackers = _start_trackers(host, hub, listeners)
        evaluator = Evaluator(
            engine,
            writer,
            registry,
            traffic.total,
            hosted.model.evaluate,
            config.evaluation.every,
            hosted.history,
            on_evaluation,
            hosted.find_suspect,
            hosted.save_best,
            lambda recovery: hub.note("warning", None, str(recovery)),
            on_devices=config.evaluation.on_devices > 0,
        )
        agreement = AgreementTracker(host.layout.parameters.size)
        if not config.coordination.traits.elastic:  # an elastic update is a device's distance from the model
            engine.observe = lambda push, step: agreement.observe(push.device, push.update.loss, step)
        graphs = GraphStore(config.model, hosted.make)
        sources = agreement, listeners.on_finding, graphs.wait_end
        health = RunHealth(host, evaluator, writer, *sources, hosted.model.targets)
        feed = Feed(host, evaluator, health, gateways.connections)
        watchers = Watchers(hub, feed, config.limits.watchers)
        tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "the task of the callbacks": listeners.run,
            "the task of the defence": guarding.run,
            "the health check": health.run,
            "the check of the lease": partial(watch_lease, hosted.loss_reason),
            "the check for revoked tokens": partial(enforce, hosted.register, registry, watchers, gateways),
        }
        background = Background(writer, evaluator, hub, tasks)
        app[keys.HOST], app[keys.WRITER], app[keys.EVALUATOR], app[keys.FEED] = host, writer, evaluator, feed
        app[BACKGROUND], app[keys.LISTENERS], app[keys.WATCHERS] = background, listeners, watchers
        app[keys.HEALTH], app[keys.GRAPHS] = health, graphs
        background.start(on_failure)
        yield
        if sums is not None:
            sums.close()
        await background.stop()
        listeners.call_queued()
        await evaluator.close()
        await asyncio.to_thread(close_trackers)

    app.cleanup_ctx.append(run)
    app.on_response_prepare.extend((close_forwarded, share_answer))
    app.on_shutdown.append(_stop)
    return app


def _start_trackers(
    host: RunHost, hub: Hub, listeners: Listeners
) -> tuple[Callable[[Evaluation | None], None], Callable[[], None]]:
    """Return (the callback for each evaluation, the function that closes the trackers)."""
    loop = asyncio.get_running_loop()

    def on_failure(text: str) -> None:
        loop.call_soon_threadsafe(hub.note, "warning", None, text)

    tracked = RunInfo(host.terms.run, Path(host.config.server.directory), flat_settings(host))
    trackers = Trackers(host.config.evaluation.trackers, tracked, on_failure)

    def on_evaluation(evaluation: Evaluation | None) -> None:
        if evaluation is None:
            hub.note("warning", None, "the model's evaluation failed; the server's log says why")
        else:
            trackers.write(evaluation)
            listeners.on_evaluation(evaluation)

    return on_evaluation, trackers.close


def listen(
    app: web.Application,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    sockets: list[socket.socket] | None = None,
) -> AbstractAsyncContextManager[int]:
    """Serve as `listening.listen_on` does."""
    place = host, port, tls, sockets
    return listen_on(app, app[keys.CONNECTION_LIMITS], lambda: app[keys.HOST].traffic, *place)


@dataclass(frozen=True, slots=True)
class RunningServer:
    app: web.Application
    port: int
    ended: asyncio.Event
    """Set if the server cannot continue. `check` then raises the cause."""

    def check_ended(self) -> None:
        """Call `check` if the server has ended."""
        if self.ended.is_set():
            self.check()

    def check(self) -> None:
        """Raises EdgeflockError if the server cannot continue, or the exception of a user's callback."""
        if (failure := self.app[keys.LISTENERS].failure) is not None:
            raise failure
        config = self.app[keys.HOST].config
        if (error := self.app[keys.WRITER].error) is not None:
            journal = redact(config.journal.url) or config.server.directory
            raise EdgeflockError(
                f"the server stopped: it can no longer write the journal in {journal}: {error}; acknowledged "
                "updates are safe: remove the cause, and start the server again if it has ended"
            ) from error
        if (failed := self.app[BACKGROUND].failure) is not None:
            task, cause = failed
            if isinstance(cause, JournalLost):
                raise EdgeflockError(f"the server stopped: {cause}; acknowledged updates are safe") from cause
            raise EdgeflockError(
                f"the server stopped: {task} failed: {cause!r}; acknowledged updates are safe: start it again"
            ) from cause


@asynccontextmanager
async def serve(
    config: Config,
    hosted: HostedRun,
    on_failure: Callable[[], None] = lambda: None,
    sockets: list[socket.socket] | None = None,
) -> AsyncIterator[RunningServer]:
    """Serve while the context lasts. `on_failure` is called if the server cannot continue.

    Raises EdgeflockError on exit if the server could not continue, or on entry if it cannot listen.
    """
    ended = asyncio.Event()

    def on_end() -> None:
        ended.set()
        on_failure()

    app = create_app(config, hosted, on_end)
    async with listen(app, config.server.host, config.server.port, hosted.tls, sockets) as port:
        served = RunningServer(app, port, ended)
        yield served
    served.check()


async def _stop(app: web.Application) -> None:
    """End the sessions, and an export that devices wait for."""
    app[keys.WRITER].prepare_stop()
    await app[keys.GATEWAYS].close()
    lines = [d.connection.session for d in app[keys.HOST].registry.devices.values() if d.connection.session]
    await asyncio.gather(app[keys.WATCHERS].close(), *(line.leave() for line in lines))
    await app[keys.GRAPHS].close()
