"""A server in this program: a run and its server, in a context."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from edgeflock.api.data import Data, dataset
from edgeflock.api.keywords import sections_of
from edgeflock.api.model import Model, model_of
from edgeflock.api.named import Metrics, check_callback, split_metrics
from edgeflock.api.opening import enter_in_thread
from edgeflock.api.result import Result
from edgeflock.server.app import RunningServer, serve
from edgeflock.server.connections.reverse_proxy import ReverseProxy
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.hosting.program_objects import ServerObjects
from edgeflock.server.hosting.run import HostedRun, open_run
from edgeflock.server.hosting.standby import Standby, serve_standby
from edgeflock.server.http.keys import EVALUATOR, HOST, LISTENERS, WRITER
from edgeflock.server.identity import ADMIN_TOKEN
from edgeflock.server.monitoring.listeners import Applied, Callbacks
from edgeflock.shared.errors import ConfigError, Diverged, EdgeflockError
from edgeflock.shared.model.lora import whole_model
from edgeflock.shared.protocol.frames import Evaluation, Event, Finding
from edgeflock.shared.settings import config as settings_of
from edgeflock.shared.settings.config import Config

if TYPE_CHECKING:
    from torch import nn

_POLL_SECONDS = 0.02
"""Seconds between two checks of a run that a caller waits for."""

_DAY = 86400.0


class Server:
    """Hosts a model and applies updates.

    Use it once, as an async context manager:

    async with Server(model, directory="run", updates=8000, evaluate=(x, y)) as server:
        ...
        result = await server.until()
    """

    def __init__(
        self,
        model: "Model | str | Callable[[], nn.Module] | nn.Module",
        *,
        directory: str | Path = "edgeflock-run",
        port: int = 0,
        evaluate: "Data | str | Callable[[nn.Module], Any] | None" = None,
        metrics: "Metrics" = (),
        on_update: Callable[[Applied], object] | None = None,
        on_evaluated: Callable[[Evaluation], object] | None = None,
        on_finding: Callable[[Finding], object] | None = None,
        stop: Callable[[Evaluation], object] | None = None,
        **settings: object,
    ) -> None:
        """`directory` keeps the run, and a later server with the same one continues it.

        Port 0 is any free one.

        `evaluate` is held-out data: (x, y), a data URI, or a function of the current module to its loss or
        (loss, accuracy). `metrics` are names like model.metrics. They may also be your own names with
        torchmetrics' metrics or functions of (outputs, targets) of all held-out data. Evaluation.metrics has
        their values. `on_update` receives every update in the model, `on_evaluated` every evaluation, and
        `on_finding` every new finding, in order, in the event loop. An evaluation for which `stop` returns
        true, or an exception of these functions, ends the run. Other settings are those of `edgeflock
        config`: a section by its name as a dict, a preset by its name, and some settings by names of their
        own, e.g. `updates` and `local_steps` (docs/library.md). Raises ConfigError.
        """
        listening = Callbacks(
            check_callback(on_update, "Server(on_update"),
            check_callback(on_evaluated, "Server(on_evaluated"),
            check_callback(stop, "Server(stop"),
            check_callback(on_finding, "Server(on_finding"),
        )
        self._standby: Standby | None = None
        self._initialise(*_parse(model_of(model), directory, port, evaluate, metrics, listening, settings))

    @classmethod
    def configured(
        cls, config: Config, standby: Standby | None = None, proxy: ReverseProxy | None = None
    ) -> Self:
        """Return a server with the settings of a file.

        It waits for the run as `standby` says: as one of several servers, or after the loss of its journal.
        `proxy` is the server of several runs in front of it, if there is one.
        """
        server = cls.__new__(cls)
        server._standby = standby
        model = Model(config.model.module, loss=config.model.loss)
        server._initialise(model, config, ServerObjects(proxy=proxy))
        return server

    def _initialise(self, model: Model, config: Config, objects: ServerObjects) -> None:
        self.model = model
        self.config = config
        self._objects = objects
        self._hosted: HostedRun | None = None
        self._serving: RunningServer | None = None
        self._opened = AsyncExitStack()
        self._token = ""
        self._body: asyncio.Task[Any] | None = None
        """The task that entered the context."""
        self._cancelling = 0
        """The number of cancellation requests for that task before the context."""
        self._has_failed = False

    async def __aenter__(self) -> Self:
        """Open the run, which loads torch, and listen. Raises ConfigError or EdgeflockError.

        If the server cannot go on, it cancels the task in the context. `__aexit__` then raises the cause.
        """
        if self._hosted is not None:
            raise ConfigError("this Server has been used; make another one to serve its run again")
        async with AsyncExitStack() as opening:
            self._hosted = await self._open(opening)
            sockets = None if self._standby is None else self._standby.sockets
            served = serve(self.config, self._hosted, self._cancel_body, sockets)
            self._serving = await opening.enter_async_context(served)
            self._hosted.register.store_address(self.url, self._hosted.pin)
            self._was_over = self._active.app[EVALUATOR].state != "training"
            self._opened = opening.pop_all()
            self._body = asyncio.current_task()
            assert self._body is not None, "this is a coroutine"
            self._cancelling = self._body.cancelling()
        return self

    async def _open(self, opening: AsyncExitStack) -> HostedRun:
        """Open the run, after this server has become its leader if there are standbys."""
        standby = self._standby
        if standby is not None and standby.waits:
            tls = await asyncio.to_thread(standby.tls, self.config)
            async with serve_standby(self.config, tls, standby):
                run = open_run(self.config, self._objects, standby.wait, standby.place)
                return await opening.enter_async_context(enter_in_thread(run))
        run = open_run(self.config, self._objects, None, None if standby is None else standby.place)
        hosted = await opening.enter_async_context(enter_in_thread(run))
        if standby is not None:
            standby.start_leading(hosted.tls)
        return hosted

    def _cancel_body(self) -> None:
        """Cancel the task in the context, because the server cannot go on."""
        if self._serving is not None and self._body is not None:
            self._has_failed = True
            self._body.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        """Answer waiting requests, write the journal's end and release all resources, even if cancelled.

        Raises EdgeflockError if the server could not go on, or the exception of a function that it was given,
        unless the context has another exception.
        """
        self._serving = None
        closing = asyncio.ensure_future(self._opened.aclose())
        cancelled = False
        while not closing.done():
            try:
                await asyncio.wait([closing])
            except asyncio.CancelledError:
                cancelled = True
        failure = closing.exception()
        if self._has_failed and self._body is not None and self._body.uncancel() <= self._cancelling:
            cancelled = False  # only `_cancel_body` has cancelled the task
            error = None if isinstance(error, asyncio.CancelledError) else error
        if cancelled:
            raise asyncio.CancelledError
        if failure is not None and error is None:
            raise failure

    @property
    def url(self) -> str:
        """The URL of the server."""
        if self._objects.proxy is not None:
            return self._objects.proxy.url
        host = self.config.server.host
        name = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
        return f"{'http' if self._run.tls is None else 'https'}://{name}:{self._active.port}"

    @property
    def token(self) -> str:
        """A token that lets devices join, within a day of its first use. It is empty in an open run."""
        if not self._token and not self.config.server.open:
            # Each start makes a new token, because the register keeps only hashes.
            self._token = self._run.register.create("device", reusable=True, seconds=_DAY, labels={}).text
        return self._token

    @property
    def admin_token(self) -> Path:
        """The file with the token of this run's operator, for `edgeflock top` and the like."""
        return Path(self.config.server.directory) / ADMIN_TOKEN

    @property
    def run(self) -> str:
        """The name of the run."""
        return self._run.run

    @property
    def version(self) -> int:
        """The number of updates in the current model."""
        return self._run.engine.published.version

    async def events(self) -> AsyncIterator[Event]:
        """Yield past and new events until the run is over or the server stops.

        Events are joins, leaves, evaluations, refusals and warnings. Raises EdgeflockError if the server
        cannot go on.
        """
        served, seen = self._active, 0
        events, evaluator = served.app[HOST].hub.events, served.app[EVALUATOR]
        while self._serving is served:
            served.check_ended()
            is_over = evaluator.state != "training"
            new, _ = events.list_from(seen)
            seen = events.count
            for event in new:
                yield event
            if is_over and (self._was_over or any(event.kind in ("finished", "diverged") for event in new)):
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def until(
        self, updates: int | None = None, *, stop: Callable[[Evaluation], object] | None = None
    ) -> Result:
        """Return the model of the complete, evaluated run, or the model once it has `updates` updates.

        Then the run goes on until the context ends. An evaluation for which `stop` returns true ends the run.

        Raises Diverged if the model is not finite, EdgeflockError if the server cannot go on, ConfigError if
        the run has no such end, and what `stop` raises.
        """
        end, evaluator = self.config.end, self._active.app[EVALUATOR]
        target = end.updates
        if stop is not None and self._run.model.evaluate is None:
            raise ConfigError("until(stop=...): nothing is evaluated; give the Server evaluate=(x, y)")
        ends = target or end.accuracy or end.patience or end.seconds or end.bytes or self._run.callbacks.stop
        if updates is None and stop is None and not ends:
            raise ConfigError(
                "until(): the run has no end; set updates of the Server, or say until(updates=N)"
            )
        if updates is not None and 0 < target < updates:
            raise ConfigError(f"until(updates={updates}): the run ends at updates={target}")
        seen = max(0, len(evaluator.history) - 1)
        while not (evaluator.finished or (updates is not None and self.version >= updates)):
            new, seen = evaluator.history[seen:], len(evaluator.history)
            if stop is not None and any(stop(one) for one in new):
                await self._active.app[LISTENERS].end("an evaluation was enough (until)")
                stop = None
            self._active.check_ended()
            if evaluator.divergence is not None:
                raise Diverged(evaluator.divergence)
            await asyncio.sleep(_POLL_SECONDS)
        version, theta = await self._active.app[WRITER].call(self._run.engine.result)
        setup = self._run.model
        theta, extras = whole_model(setup.adapted, theta, setup.extras)
        return Result(
            model=self.model,
            layout=self._run.engine.layout if setup.adapted is None else setup.adapted.layout,
            run=self.run,
            version=version,
            theta=theta,
            extras=extras,
            data=self._run.description,
            evaluations=tuple(evaluator.history),
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Wait for `stop`. Raises EdgeflockError as soon as the server cannot go on."""
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, self._active.ended)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*waiting)
        self._active.check()

    @property
    def _run(self) -> HostedRun:
        if self._hosted is None:
            raise EdgeflockError("the server does not run: `async with Server(...) as server`")
        return self._hosted

    @property
    def _active(self) -> RunningServer:
        if self._serving is None:
            raise EdgeflockError("the server does not run: `async with Server(...) as server`")
        return self._serving


def _parse(
    model: Model,
    directory: str | Path,
    port: int,
    evaluate: Any,
    metrics: "Metrics",
    listening: Callbacks,
    settings: dict[str, object],
) -> tuple[Model, Config, ServerObjects]:
    """Return the model, the settings and the objects of a server. Raises ConfigError."""
    held_out, evaluator, uri = None, None, ""
    if isinstance(evaluate, str | os.PathLike):
        uri = os.fspath(evaluate)
    elif callable(evaluate):
        evaluator = _evaluator(evaluate)
    elif evaluate is not None:
        held_out = dataset(evaluate, "edgeflock.Server(evaluate=...)")
        shape = list(held_out.x.shape[1:])
        if model.input and model.input != shape:
            raise ConfigError(
                f"edgeflock.Server(evaluate=...): samples have the shape {shape}, those of "
                f"Model(example=...) {model.input}; leave the example out"
            )
    names, own = split_metrics(metrics, "Server(metrics")
    of_model = {**model.settings, "data": uri, "metrics": names}
    if held_out is not None:
        of_model["input"] = list(held_out.x.shape[1:])
    usual = {"server": {"directory": os.fspath(directory), "port": port}, "model": of_model}
    tables = sections_of(settings, Config.model_fields, usual, ("model", "client"), Server)
    config = settings_of.from_sections(tables, "edgeflock.Server", CHOICES)
    return model, config, ServerObjects(model.make, held_out, evaluator, listening, own)


def _evaluator(evaluate: "Callable[[nn.Module], Any]") -> "Callable[[nn.Module], tuple[float, float | None]]":
    """Return `evaluate` as a function of (loss, accuracy). It may return the loss alone."""

    def evaluate_module(module: "nn.Module") -> tuple[float, float | None]:
        result = evaluate(module)
        loss, accuracy = result if isinstance(result, tuple) else (result, None)
        return float(loss), None if accuracy is None else float(accuracy)

    return evaluate_module
