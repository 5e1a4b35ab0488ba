"""A fleet on one machine: N emulated devices and the engine, in virtual time, for one seed.

    result = run_fleet(prepare(file), seed, directory)

The same file and seed give the same result, bit for bit. A run that was cut short goes on from its journal:
the updates that had been computed are taken from there instead of being computed again (interrupted.py says
what that cannot do).
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend
from edgeflock.client.backends.torch import TorchBackend
from edgeflock.client.data import Shuffled
from edgeflock.client.training.shards import Shards
from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.devices.emulation.config import DeviceClass, FleetFile, headcount
from edgeflock.devices.emulation.device import EmulatedDevice
from edgeflock.devices.emulation.interrupted import JOURNAL, Interrupted
from edgeflock.devices.emulation.link import ClassTotals
from edgeflock.devices.emulation.pace import Pace
from edgeflock.devices.emulation.server import EmulatedServer
from edgeflock.devices.emulation.streams import EmulatedStream, StreamTally
from edgeflock.server.coordination import Push
from edgeflock.server.defence import DEFENCES
from edgeflock.server.engine import Accepted, check_limits
from edgeflock.server.findings import EVERY, Agreement, Picture, Portrait, changes, findings
from edgeflock.server.ledger import Journal, open_engine
from edgeflock.server.operations.listeners import Applied, Listening
from edgeflock.server.scoring import Own, Scores
from edgeflock.server.trusting import set_apart, trusted
from edgeflock.server.weights import first_model
from edgeflock.shared.data import datasets
from edgeflock.shared.data.curves import Later, curve, steady
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.errors import ConfigError, Diverged
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import Fields, rows
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.torch_module import FlatModule, Make
from edgeflock.shared.model.trial import SAMPLES
from edgeflock.shared.protocol.frames import Evaluation, Finding
from edgeflock.shared.settings.coordination import ELASTIC

News = TypeVar("News")

BackendOf = Callable[[int, Backend], Backend]
"""(device's number, what computes gradients) -> what computes that device's."""


@dataclass(frozen=True, slots=True)
class FleetResult:
    """One run of a fleet."""

    seed: int
    ended: str
    """complete, stopped, out of time, diverged, or no device left."""
    updates: int
    classes: dict[str, ClassTotals]
    digest: str
    """Of the final theta: equal runs have equal ones."""
    size: int
    """Of theta: parameters and running statistics."""
    gradients_per_update: int = 1
    streams: dict[str, StreamTally] = field(default_factory=dict)
    """device -> how its stream did, if it has one."""
    gradient_s: float = 0.0
    evaluation_s: float = 0.0
    total_s: float = 0.0
    """CPU seconds: of the gradients, of the evaluations, of everything. All else is reproducible."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A fleet file with its data, checked against each other."""

    file: FleetFile
    shares: list[Dataset]
    test: Dataset
    flops: int
    """Floating-point operations of one step."""
    make: Make | None = None
    """Builds the model, if no import string does."""
    metrics: Mapping[str, Own] = field(default_factory=dict)
    """A program's own."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a program has at hand in the place of what a fleet file names."""

    train: Dataset | None = None
    test: Dataset | None = None
    make: Make | None = None
    metrics: Mapping[str, Own] = field(default_factory=dict)
    """Beside those that model.metrics names."""


def prepare(file: FleetFile, given: Given = Given()) -> Prepared:
    """Load what `file` names, if it is not `given`. Raises ConfigError if the data cannot be dealt out or do
    not fit the model.
    """
    fleet = file.fleet
    if not file.model.data:
        raise ConfigError("model.data = '': a fleet needs held-out data to evaluate on")
    test = given.test or _load(file.model.data, "test")
    described = test.described.told
    train = given.train or _load(fleet.data, "train", described)
    samples = fleet.samples or len(train)
    if samples > len(train):
        raise ConfigError(f"fleet.samples = {samples}: fleet.data = {fleet.data!r} has only {len(train)}")
    if fleet.devices > samples:
        raise ConfigError(
            f"fleet.devices = {fleet.devices}: there are only {samples} samples, and a device needs one at "
            f"least (fleet.data = {fleet.data!r})"
        )
    if given.train is None:
        shares = _deal(fleet.data, fleet.devices, samples, fleet.labels, described)
    else:
        shares = _dealt(train, fleet.devices, samples, fleet.labels)
    if fleet.devices > file.limits.devices:
        raise ConfigError(
            f"fleet.devices = {fleet.devices}: limits.devices = {file.limits.devices}; raise it"
        )
    flat = FlatModule(file.model.module, file.model.loss, make=given.make)
    check_limits(file, flat.layout)
    scores = Scores(file.model.metrics, given.metrics)
    try:
        flat.evaluate(flat.theta(), rows(test.x, slice(SAMPLES)), test.y[:SAMPLES], seen=scores.see)
        flops = flat.flops(rows(train.x, slice(file.run.batch)), train.y[: file.run.batch])
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise ConfigError(
            f"model.module = {file.model.module!r} does not fit fleet.data = {fleet.data!r} with "
            f"model.data = {file.model.data!r}: {error}"
        ) from error
    scores.check()
    return Prepared(file, shares, test, flops, given.make, given.metrics)


@lru_cache(maxsize=4)
def _load(data: str, split: str, described: Description | None = None) -> Dataset:
    """Kept for the next run on it."""
    return datasets.load(data, split, described)


@lru_cache(maxsize=1)
def _deal(data: str, devices: int, samples: int, labels: int, described: Description | None) -> list[Dataset]:
    return _dealt(_load(data, "train", described), devices, samples, labels)


def _dealt(train: Dataset, devices: int, samples: int, labels: int) -> list[Dataset]:
    if labels:
        return datasets.deal_by_label(train, devices, labels, samples)
    return datasets.deal(train, devices, samples)


def run_fleet(
    prepared: Prepared,
    seed: int,
    directory: Path,
    listening: Listening | None = None,
    stop: Callable[[Evaluation], object] = lambda _: False,
    backend_of: BackendOf = lambda number, backend: backend,
) -> FleetResult:
    """One run; with run.keep_updates its journal lies in `directory` until it is over.

    With error feedback, a threshold, injection, elastic averaging or tasks a step depends on more of the
    earlier ones than the journal holds: such a run begins again if it is interrupted. It ends after an
    evaluation of which `stop` is true. `backend_of` may give devices gradients of their own. Raises
    ConfigError, and what those raise that are `listening`.
    """
    began = time.process_time()
    file = prepared.file
    backend = TorchBackend(file.model.module, file.model.loss, seed=seed, make=prepared.make)
    flat = FlatModule(file.model.module, file.model.loss, seed, prepared.make)
    compression = file.compression
    remembers = compression.feedback or compression.threshold or file.injection.alpha
    remembers = remembers or file.coordination.mode == ELASTIC
    remembers = remembers or file.coordination.tasks  # who computes what depends on all that went before
    if file.run.keep_updates and not remembers:
        earlier: Interrupted | None = Interrupted(directory)
        journal = Journal(directory / JOURNAL, durable=False)
    else:
        earlier, journal = None, Journal(Path(":memory:"), durable=False)
    timed, told = _Timed(backend), (listening or Listening()).beside(file.run)
    run = _FleetRun(prepared, seed, flat, timed, journal, earlier, told, stop, backend_of)
    try:
        result = run.result()
    finally:
        journal.close()
        if earlier is not None:
            earlier.close()
    if earlier is not None:
        earlier.forget()
    return replace(result, gradient_s=timed.seconds, total_s=time.process_time() - began)


class _Timed:
    """A backend that knows how long its gradients took."""

    def __init__(self, backend: TorchBackend) -> None:
        self._backend = backend
        self.name, self.layout = backend.name, backend.layout
        self.seconds = 0.0

    def gradient(
        self, theta: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.generic]
    ) -> Gradient:
        began = time.process_time()
        result = self._backend.gradient(theta, x, y)
        self.seconds += time.process_time() - began
        return result


class _FleetRun:
    """One fleet at work."""

    def __init__(
        self,
        prepared: Prepared,
        seed: int,
        flat: FlatModule,
        backend: Backend,
        journal: Journal,
        earlier: Interrupted | None,
        listening: Listening,
        stop: Callable[[Evaluation], object],
        backend_of: BackendOf,
    ) -> None:
        file = self._file = prepared.file
        self._seed, self._flat = seed, flat
        self._earlier, self._listening, self._stop = earlier, listening, stop
        self._stopped = False
        self._failure: Exception | None = None
        """What a function has raised that was called of what happened."""
        self._scores = Scores(file.model.metrics, prepared.metrics)
        self._evaluations: list[Evaluation] = []
        self._evaluation_s = 0.0
        self._test = prepared.test
        self._trust: Dataset | None = None
        """Samples that the guard's gradients are of."""
        if file.defence.mode != "none" and DEFENCES.chosen(file.defence.mode).trusts:
            self._trust, self._test = set_apart(prepared.test)
        theta, start = first_model(flat, file.model.weights, seed)
        journal.begin_run("fleet", file.model.module, flat.layout, theta, 0.0, start)
        held = journal.path.parent if earlier is not None and isinstance(journal.path, Path) else None
        self._engine = open_engine(journal, flat.layout, file, held)
        self._server = EmulatedServer(
            file,
            self._engine,
            self._committed,
            None if isinstance(self._test.x, Fields) else self._test.x.shape[1:],
            keep_frames=earlier is not None,
            made=self._made,
        )
        self._agreement = Agreement(flat.layout.parameters.size)
        self._findings: tuple[Finding, ...] = ()
        self._looked = 0.0
        """When, in virtual seconds."""
        if listening.on_finding is not None and file.coordination.mode != ELASTIC:
            self._engine.observe = lambda push, step: self._agreement.observe(
                push.device, push.update.loss, step
            )
        self._names: dict[int, str] = {}
        """A device's number in the journal -> its name."""
        self._tallies: dict[str, ClassTotals] = {}
        self._devices = list(self._make_devices(prepared, backend, backend_of))
        self._look_again()

    def _make_devices(
        self, prepared: Prepared, backend: Backend, backend_of: BackendOf
    ) -> Iterator[EmulatedDevice]:
        """The fleet: classes dealt over the shares at random, so that no class gets certain data."""
        kinds = self._file.classes
        counts = headcount(kinds, self._file.fleet.devices)
        names = np.random.default_rng([self._seed, 0]).permutation(
            np.repeat(list(counts), list(counts.values()))
        )
        paces = {name: Pace.of(kind, prepared.flops) for name, kind in kinds.items()}
        self._tallies = {name: ClassTotals(devices=counts[name]) for name in kinds}
        for number, (kind, data) in enumerate(zip(names, prepared.shares, strict=True)):
            name = f"{kind}-{number}"
            device = self._engine.device_id(name)
            self._names[device] = name
            shards = self._held_by(number)
            yield EmulatedDevice(
                name,
                kinds[kind],
                paces[kind],
                self._server,
                backend_of(number, backend),
                self._sharded(prepared.shares, shards, number)
                if shards
                else self._batches(kinds[kind], data, number),
                self._tallies[kind],
                np.random.default_rng([self._seed, 2, number]),
                np.random.default_rng([self._seed, 4, number]),
                partial(self._earlier.update, device) if self._earlier else lambda sequence, until: None,
                [f"shard-{shard}" for shard in shards],
            )

    def _held_by(self, number: int) -> list[int]:
        """The shards of a device, its own first: those of a column of the cyclic matrix. In a run of
        tasks.
        """
        tasks, devices = self._file.coordination.tasks, self._file.fleet.devices
        holds = (self._file.fleet.holds or tasks) if tasks else 0
        return [(number + step) % devices for step in range(holds)]

    def _sharded(self, data: Sequence[Dataset], shards: Sequence[int], number: int) -> Shards:
        """Each device draws its own batches of a shard."""
        return Shards(
            [Shuffled(data[one], np.random.default_rng([self._seed, 1, number, one])) for one in shards]
        )

    def _batches(self, kind: DeviceClass, data: Dataset, number: int) -> Shuffled | EmulatedStream:
        random = np.random.default_rng([self._seed, 1, number])
        own = np.random.default_rng([self._seed, 3, number])
        rate = curve(kind.rate, own)
        if rate == steady(0):
            return Shuffled(data, random)
        if rate.period < math.inf:  # each device is somewhere else in it
            rate = Later(rate, own.uniform(0, rate.period))
        everything = kind.buffer == "persistence"
        return EmulatedStream(data, rate, random, kind.batch_min, kind.batch_max, everything=everything)

    def result(self) -> FleetResult:
        try:
            ended = run_virtually(self._live())
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
            self._file.run.local_steps,
            streams={
                device.name: device.batches.tally
                for device in self._devices
                if isinstance(device.batches, EmulatedStream)
            },
            evaluation_s=self._evaluation_s,
        )

    async def _live(self) -> str:
        """Until the run has its updates or its time, or nobody is left. Returns how it ended."""
        self._over = asyncio.Event()
        lives = [asyncio.create_task(device.live()) for device in self._devices]
        everybody, over = asyncio.gather(*lives), asyncio.create_task(self._over.wait())
        try:
            done, _ = await asyncio.wait(
                (everybody, over),
                timeout=self._file.fleet.seconds or None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if over in done:
                return "complete" if self._engine.published.complete else "stopped"
            if not self._evaluations or self._evaluations[-1].version < self._engine.published.version:
                self._evaluate()
            if everybody in done:
                everybody.result()
                return "no device left"
            return "out of time"
        finally:
            for task in (*lives, over):
                task.cancel()
            await asyncio.gather(*lives, over, everybody, return_exceptions=True)

    def _look_again(self) -> None:
        """The guard has a gradient that it may trust, and a new one now and then."""
        guard, version = self._engine.guard, self._engine.published.version
        if guard is None or self._trust is None or not guard.wants(version, self._file.defence.refresh):
            return
        began = time.process_time()
        _, theta = self._engine.theta()
        self._engine.trust(trusted(self._flat, self._trust, version, theta))
        self._evaluation_s += time.process_time() - began

    def _committed(self) -> None:
        self._look_again()
        version, every = self._engine.published.version, self._file.fleet.evaluate_every
        seen = self._evaluations[-1].version if self._evaluations else 0
        if version > seen and (self._engine.published.complete or version // every > seen // every):
            self._evaluate()
        if self._engine.published.complete or self._stopped:
            self._over.set()

    def _made(self, push: Push, accepted: Accepted) -> None:
        if self._listening.on_update is not None:
            applied = Applied.of(push, accepted, self._names[push.device])
            self._tell(self._listening.on_update, applied)
        now = asyncio.get_running_loop().time()
        if self._listening.on_finding is not None and now >= self._looked + EVERY:
            self._looked = now
            self._look(self._listening.on_finding, now)

    def _look(self, told: Callable[[Finding], object], now: float) -> None:
        """Whether any device's updates are out of line: nothing else can be wrong with emulated ones."""
        portraits = [
            Portrait(name, here=True, seen=self._agreement.of(device)) for device, name in self._names.items()
        ]
        version = self._engine.published.version
        found = findings(Picture(now, version, devices=tuple(portraits)), self._findings)
        new, self._findings = changes(self._findings, found).began, found
        for finding in new:
            self._tell(told, finding)

    def _tell(self, function: Callable[[News], object], news: News) -> object:
        """What `function` says. If it raises anything, so will `result`, whoever calls this."""
        try:
            return function(news)
        except Exception as error:
            self._failure = self._failure or error
            self._over.set()
            raise

    def _evaluate(self) -> None:
        began = time.process_time()
        version, theta = self._engine.result()
        # A journal knows no metrics.
        known_before = self._earlier.evaluation(version) if self._earlier and not self._scores else None
        loss, accuracy = known_before or self._flat.evaluate(
            theta, self._test.x, self._test.y, seen=self._scores.see
        )
        finite = math.isfinite(loss)
        traffic = self._server.traffic.total
        seconds = asyncio.get_running_loop().time()
        known = loss if finite else None
        metrics = self._scores.numbers()
        evaluation = Evaluation(version, seconds, known, accuracy, traffic.ingress, traffic.egress, metrics)
        self._engine.record(evaluation, ())
        self._evaluations.append(evaluation)
        self._evaluation_s += time.process_time() - began
        if self._listening.on_evaluated is not None:
            self._tell(self._listening.on_evaluated, evaluation)
        ends = [self._stop, *filter(None, [self._listening.stop])]
        self._stopped = any([self._tell(one, evaluation) for one in ends])
        if not finite:
            raise Diverged(f"the loss at update {version} is no number")
