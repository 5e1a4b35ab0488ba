"""One run of a fleet in virtual time: the engine, the devices, and the evaluations between updates."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend
from edgeflock.client.backends.torch import TorchBackend
from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.devices.emulation.fleet.members import create_totals, make_devices
from edgeflock.devices.emulation.fleet.preparing import PreparedFleet
from edgeflock.devices.emulation.fleet.watching import Watch
from edgeflock.devices.emulation.server import EmulatedServer
from edgeflock.devices.emulation.session import ClassTotals
from edgeflock.devices.emulation.streams import EmulatedStream, StreamTally
from edgeflock.server.coordination import Push
from edgeflock.server.engine import Accepted
from edgeflock.server.engine.welcome import welcome
from edgeflock.server.evaluation.episodes import EpisodeScores
from edgeflock.server.evaluation.federated import combine_evaluations
from edgeflock.server.evaluation.model_scores import ModelScores
from edgeflock.server.evaluation.scoring import Scores
from edgeflock.server.hosting import trusting
from edgeflock.server.hosting.weights import first_model, personal_layers
from edgeflock.server.journal import Journal
from edgeflock.server.ledger import open_engine
from edgeflock.server.monitoring.listeners import Applied, Callbacks
from edgeflock.shared.errors import Diverged
from edgeflock.shared.model.fields import Fields, Inputs
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.held_out import sketch_of
from edgeflock.shared.model.lora import Adapted
from edgeflock.shared.model.start import Start, generate
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.protocol.messages import Facts

log = logging.getLogger(__name__)

News = TypeVar("News")

BackendOf = Callable[[int, Backend], Backend]
"""(device's place in the fleet, the fleet's backend) -> the device's backend."""

HealthOf = Callable[[str], Callable[[], Facts]]
"""A device's name -> a function that returns its telemetry."""


@dataclass(frozen=True, slots=True)
class FleetResult:
    seed: int
    ended: str
    """complete, stopped, out of time, diverged, or no device left."""
    updates: int
    classes: dict[str, ClassTotals]
    digest: str
    """SHA-256 of the final theta. Equal runs have equal digests."""
    size: int
    """The length of theta: parameters and running statistics."""
    gradients_per_update: int = 1
    streams: dict[str, StreamTally] = field(default_factory=dict)
    """Device -> the tally of its stream, if it has one."""
    gradient_s: float = 0.0
    evaluation_s: float = 0.0
    total_s: float = 0.0
    """CPU seconds of the gradients, of the evaluations, and of the whole run. All else is reproducible."""


def run_fleet(
    prepared: PreparedFleet,
    seed: int,
    listening: Callbacks | None = None,
    stop: Callable[[Evaluation], object] = lambda _: False,
    backend_of: BackendOf = lambda number, backend: backend,
    health_of: HealthOf = lambda name: dict,
) -> FleetResult:
    """Run a fleet once, with its journal in memory.

    The run ends after an evaluation for which `stop` returns true. `backend_of` may replace a device's
    backend, `health_of` its telemetry. Raises ConfigError, and what functions of `listening` raise.
    """
    began = time.process_time()
    file = prepared.file
    settings = file.model
    backend = TimedBackend(
        settings.module, settings.loss, seed=seed, make=prepared.make, lora=settings.adapters
    )
    flat = FlatModule(settings.module, settings.loss, seed, prepared.make, settings.adapters)
    theta, start = first_model(flat, settings.weights, seed)
    adapted = flat.adapted()
    if adapted is not None:
        backend.load_base(adapted.theta)
    callbacks = (listening or Callbacks()).with_settings(file.callbacks)
    with closing(Journal(Path(":memory:"), durable=False)) as journal:
        run = _FleetRun(
            prepared, seed, flat, (theta, start), adapted, lambda index: backend_of(index, backend), journal,
            callbacks, stop, health_of,
        )  # fmt: skip
        result = run.result()
    return replace(result, gradient_s=backend.seconds, total_s=time.process_time() - began)


class TimedBackend(TorchBackend):
    """Measures the CPU time of its gradients."""

    seconds = 0.0

    def gradient(self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]) -> Gradient:
        began = time.process_time()
        result = super().gradient(theta, x, y)
        self.seconds += time.process_time() - began
        return result


class _FleetRun:
    def __init__(
        self,
        prepared: PreparedFleet,
        seed: int,
        flat: FlatModule,
        first: tuple[NDArray[np.float32], Start | None],
        adapted: Adapted | None,
        backends: Callable[[int], Backend],
        journal: Journal,
        listening: Callbacks,
        stop: Callable[[Evaluation], object],
        health_of: HealthOf,
    ) -> None:
        file = self._file = prepared.file
        self._seed, self._flat = seed, flat
        theta, start = first
        self._listening, self._stop = listening, stop
        self._stopped = False
        self._failure: Exception | None = None
        """The first exception that a listening function has raised."""
        self._scores = Scores(file.model.metrics, prepared.metrics)
        self._scores.set_scale(prepared.test.description.target)
        self._evaluations: list[Evaluation] = []
        self._evaluation_s = 0.0
        self._test = prepared.test
        self._episodes = None if prepared.environment is None else EpisodeScores(flat, prepared.environment)
        self._trusted: trusting.TrustedGradients | None = None
        if trusting.is_wanted(file.defence.mode):
            samples, self._test = trusting.split_trusted(prepared.test)
            self._trusted = trusting.TrustedGradients(flat, samples)
        layout, personal = flat.layout, None
        if file.model.personal:
            layers = personal_layers(flat, file.model.personal, seed)
            layout, personal = layers.split.shared, layers.own
            start = None if file.model.weights else layers.start
            theta = layers.split.split(theta)[0] if start is None else generate(start, layout)
        journal.begin_run("fleet", file.model.module, layout, theta, 0.0, start)
        self._engine = open_engine(journal, layout, file)
        shape = None if isinstance(self._test.x, Fields) else self._test.x.shape[1:]
        watched = listening.on_finding is not None
        held_out = sketch_of("fleet", self._test.x, self._test.y) if watched else None
        base = None if adapted is None else adapted.describe(sha256(adapted.file.data).digest())
        terms = welcome(
            *("fleet", file, layout, self._engine.start, shape),
            held_out=held_out,
            personal=personal,
            base=base,
        )
        self._server = EmulatedServer(
            file,
            self._engine,
            self._on_commit,
            terms,
            on_applied=self._on_applied,
        )
        self._watch = Watch(layout.parameters.size, prepared.targets, prepared.test.description.labels)
        if listening.on_finding is not None and not file.coordination.traits.elastic:
            self._engine.observe = self._watch.observe
        self._tallies = create_totals(file)
        self._devices = dict(make_devices(prepared, seed, self._server, backends, self._tallies, health_of))
        """Devices by their numbers in the journal."""
        self._refresh_trusted()

    def result(self) -> FleetResult:
        try:
            ended = run_virtually(self._run())
        except Diverged:
            ended = "diverged"
        if self._failure is not None:
            raise self._failure
        version, theta = self._engine.theta()
        return FleetResult(
            self._seed,
            ended,
            version,
            self._tallies,
            sha256(theta.tobytes()).hexdigest(),
            theta.size,
            self._file.local.steps,
            streams={
                device.name: device.batches.tally
                for device in self._devices.values()
                if isinstance(device.batches, EmulatedStream)
            },
            evaluation_s=self._evaluation_s,
        )

    async def _run(self) -> str:
        """Run until the updates or the time are used up, or no device is left. Return how the run ended."""
        self._ended = asyncio.Event()
        if self._listening.on_finding is not None:  # a server also evaluates its first model
            version, theta = self._engine.result()
            scores = self._measure(theta)
            self._watch.record_evaluation(Evaluation(version, 0.0, *scores[:2], 0, 0), ())
        lives = [asyncio.create_task(device.run()) for device in self._devices.values()]
        everybody, ended = asyncio.gather(*lives), asyncio.create_task(self._ended.wait())
        try:
            done, _ = await asyncio.wait(
                (everybody, ended),
                timeout=self._file.fleet.seconds or None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if ended in done:
                return "complete" if self._engine.published.complete else "stopped"
            if not self._evaluations or self._evaluations[-1].version < self._engine.published.version:
                self._evaluate()
            if everybody in done:
                everybody.result()
                return "no device left"
            return "out of time"
        finally:
            for task in (*lives, ended):
                task.cancel()
            await asyncio.gather(*lives, ended, everybody, return_exceptions=True)

    def _refresh_trusted(self) -> None:
        """Give the engine's defence its trusted gradients, and refresh them when they are due."""
        guard = self._engine.guard
        if self._trusted is None or guard is None:
            return
        began = time.process_time()
        for version, theta in self._engine.screening.models_to_trust():
            guard.set_trusted(self._trusted(version, theta))
        self._evaluation_s += time.process_time() - began

    def _on_commit(self) -> None:
        self._refresh_trusted()
        version, every = self._engine.published.version, self._file.fleet.evaluate_every
        seen = self._evaluations[-1].version if self._evaluations else 0
        if version > seen and (self._engine.published.complete or version // every > seen // every):
            self._evaluate()
        if self._engine.published.complete or self._stopped:
            self._ended.set()

    def _on_applied(self, push: Push, accepted: Accepted) -> None:
        if self._listening.on_update is not None:
            name = "sum" if push.summed else self._devices[push.device].name
            self._call(self._listening.on_update, Applied.from_push(push, accepted, name))
        if self._listening.on_finding is not None:
            now, version = asyncio.get_running_loop().time(), self._engine.published.version
            for finding in self._watch.new_findings(now, version, self._server.devices.values()):
                self._call(self._listening.on_finding, finding)

    def _call(self, function: Callable[[News], object], news: News) -> object:
        """Return the result of `function`. If it raises an exception, `result` raises it again."""
        try:
            return function(news)
        except Exception as error:
            self._failure = self._failure or error
            self._ended.set()
            raise

    def _measure(self, theta: NDArray[np.float32]) -> ModelScores:
        """Evaluate theta; a model with personal layers is evaluated on the devices."""
        if self._episodes is not None:
            return self._episodes.evaluate(theta)
        if self._file.model.personal:
            found = self._measure_on_devices(theta)
            return ModelScores(found.get("loss", 0.0), found.get("accuracy"))
        return self._scores.evaluate(self._flat, self._test, theta)

    def _measure_on_devices(self, theta: NDArray[np.float32]) -> Mapping[str, float]:
        """Evaluate theta on the devices' own held-out data. Empty if no device has any yet."""
        tests = [device.own_test for device in self._devices.values()]
        for test in tests:
            if test is not None:
                test.evaluate(theta)
        return combine_evaluations(test.facts for test in tests if test is not None) or {}

    def _evaluate(self) -> None:
        began = time.process_time()
        version, theta = self._engine.result()
        scores = self._measure(theta)
        finite = math.isfinite(scores.loss)
        traffic = self._server.traffic.total
        seconds = asyncio.get_running_loop().time()
        loss, octets = scores.loss if finite else None, (traffic.ingress, traffic.egress)
        metrics = scores.metrics
        if self._file.evaluation.on_devices:
            found = self._measure_on_devices(theta)
            metrics = {**metrics, **{f"on_devices.{key}": number for key, number in found.items()}}
        if self._file.fleet.evaluate_unaveraged:
            metrics = {**metrics, "unaveraged": self._measure(self._engine.theta()[1]).accuracy}
        evaluation = Evaluation(version, seconds, loss, scores.accuracy, *octets, metrics, scores.classes)
        recovery = self._engine.steering.record(evaluation, (), may_recover=True)
        self._evaluations.append(evaluation)
        self._watch.record_evaluation(evaluation, self._server.devices.values())
        self._evaluation_s += time.process_time() - began
        if self._listening.on_evaluated is not None:
            self._call(self._listening.on_evaluated, evaluation)
        ends = [self._stop, *filter(None, [self._listening.stop])]
        self._stopped = any([self._call(one, evaluation) for one in ends])
        if recovery is not None:
            log.warning("%s", recovery)
            self._server.wake()
        elif not finite:
            if self._listening.on_finding is not None:
                for finding in self._watch.new_findings(
                    seconds, version, self._server.devices.values(), diverged=True
                ):
                    self._call(self._listening.on_finding, finding)
            raise Diverged(f"the loss at update {version} is no number")
