"""A project put to the test in this process: what a server and its devices will meet."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends.onnx import OnnxBackend
from edgeflock.client.backends.torch import TorchBackend
from edgeflock.client.data.batcher import RawBatches
from edgeflock.client.data.open import is_stored
from edgeflock.client.training import Trainer
from edgeflock.projects.range_test import PROBE, RangeTest, constant_loss, range_test
from edgeflock.projects.remarks import other_units, remarks
from edgeflock.server.descent import Regime
from edgeflock.server.engine import check_limits
from edgeflock.server.engine.welcome import welcome
from edgeflock.server.evaluation.scoring import Scores
from edgeflock.server.findings import REMEDY, Targets
from edgeflock.server.hosting.weights import first_model
from edgeflock.server.training_graph.export import export_model
from edgeflock.shared.data import datasets
from edgeflock.shared.data.fitting import read_as
from edgeflock.shared.data.samples import Dataset, Raw
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Fields, Inputs, arrays_by_name, rows
from edgeflock.shared.model.gradient import SAMPLES, Trial, trial
from edgeflock.shared.model.held_out import Overlap, sketch_of
from edgeflock.shared.model.losses import scales_targets
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.numbers import size
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Welcome
from edgeflock.shared.settings.config import Config

LARGE = 30.0
"""Inputs that usually reach farther from 0 make the first steps leap."""

SMALL = 10_000
"""Parameters of a model whose whole gradient is short."""

SLOW, HEAVY = 1000.0, 1 << 28
"""Milliseconds and bytes of a step that a small device may not have."""


@dataclass(frozen=True, slots=True)
class ProjectCheck:
    """What was found of a project that can be trained."""

    model: str
    parameters: int
    held_out: int
    """Samples to evaluate on, and"""
    training: int | None
    """to train on; None: client.data names none that are stored."""
    overlap: int
    """Of those about so many are held-out ones."""
    labels: tuple[str, ...]
    trial: Trial
    """By onnxruntime, on a batch."""
    memory: int
    """Bytes of that step's tensors."""
    graph: int
    """Bytes of the graph that devices without torch get."""
    export_seconds: float
    update: int | None
    """Bytes of a device's first update on the wire; None: it is masked, for a secure sum."""
    selects: bool
    """Whether updates are of the largest part of the gradient."""
    reach: float
    """How far inputs usually reach from 0."""
    notes: tuple[str, ...] = ()
    """What is done about missing values, and what may be wrong with the data."""
    rate: RangeTest | None = None
    """None: no learning rate was looked for."""

    def lines(self) -> Iterator[str]:
        named = f", classes {', '.join(self.labels[:8])}{', ...' if self.labels[8:] else ''}"
        trained = "" if self.training is None else f", {self.training:,} to train on"
        if self.training is not None and self.overlap >= self.training:
            trained = ", and the same ones to train on"
        yield f"model   {self.model}, {self.parameters:,} parameters"
        yield f"data    {self.held_out:,} samples to evaluate on{trained}{named if self.labels else ''}"
        yield f"step    {self.trial} and {size(self.memory)}, without torch"
        yield f"export  {size(self.graph)} in {self.export_seconds:.1f} s, the same gradients as torch's"
        if self.update is None:
            yield "update  masked, for a secure sum: longer than one that is sent alone"
        else:
            dense = 4 * self.parameters
            yield f"update  {self.update:,} bytes, the first of a device; dense it would be {dense:,}"
        if self.rate is not None:
            yield f"rate    {self.rate}"
        yield from (f"advice  {line}" for line in self.advice())

    def advice(self) -> Iterator[str]:
        """What works, and might work better."""
        yield from self.notes
        if self.rate is not None and self.rate.advice:
            yield self.rate.advice
        if self.reach > LARGE:
            yield (
                f"inputs usually reach {self.reach:.3g} from 0, and models train best on about 1: scale them "
                "in the data; a table is scaled, so a column has another unit than in the held-out data, or "
                "there is scale=none"
            )
        if self.parameters < SMALL and self.selects:
            yield (
                "so small a model trains faster with all of its gradient, which is still short: "
                "compression.select = 1"
            )
        if self.trial.milliseconds > SLOW or self.memory > HEAVY:
            yield "a small device may take long, or lack the memory: a smaller local.batch takes less of both"
        if self.overlap:
            yield (
                f"client.data has about {self.overlap:,} of the held-out samples, on which no device should "
                "train: evaluations are too good; name other rows, or say held=0.2 in both"
            )
        if self.training is None:
            yield "client.data names nothing that is stored here: only the held-out data were looked at"


def check_project(
    config: Config, read: Callable[[str, str], Raw] = datasets.read, *, tests_rate: bool = False
) -> ProjectCheck:
    """What a project comes to; with `tests_rate` also at which learning rate it trains, which takes seconds.

    Raises ConfigError that says what cannot work, and what to do about it.
    """
    if not config.model.data:
        raise ConfigError(
            "model.data = '': nothing says what samples look like; name held-out data, such as "
            "csv:held_out.csv?label=COLUMN; without data no learning rate can be tested"
        )
    module, loss = config.model.module, config.model.loss
    raw = read(config.model.data, "test")
    held_out, note = read_as(raw, targets=scales_targets(loss))
    targets = None if held_out.description.target or not scales_targets(loss) else Targets.from_y(held_out.y)
    description = held_out.description.reported
    shape = None if isinstance(held_out.x, Fields) else held_out.x.shape[1:]
    flat = FlatModule(module, loss, config.model.seed, lora=config.model.adapters)
    check_limits(config, flat.layout)
    theta, start = first_model(flat, config.model.weights, config.model.seed)
    adapted = flat.adapted()
    terms = welcome("check", config, flat.layout, start, shape=shape, description=description)
    sketch = sketch_of(terms.run, held_out.x, held_out.y)
    # What a device does with its data as it joins, and the first update that it would send.
    backend, random = _backend(config, flat.base_theta()), np.random.default_rng(0)
    batches = RawBatches(raw, random)
    batches.begin(terms, backend)
    shifted: tuple[str, ...] = ()
    training, overlap = None, Overlap(terms.run, sketch) if sketch is not None else None
    if "data" in config.client.model_fields_set and is_stored(config.client.data):
        batches = RawBatches(read(config.client.data, "train"), random)
        batches.begin(terms, backend)
        training = len(batches)
        if isinstance(batches.samples.x, np.ndarray):
            shifted = tuple(other_units(held_out, batches.samples.x))
        if overlap is not None:
            overlap.add_stored(batches.samples.x, batches.samples.y)
    update = Trainer(backend, batches, terms).step(theta, 0, 1)
    if scores := Scores(config.model.metrics):
        scores.set_scale(held_out.description.target)
        flat.evaluate(theta, rows(held_out.x, slice(SAMPLES)), held_out.y[:SAMPLES], on_batch=scores.update)
        scores.check()
    began = time.perf_counter()
    few = rows(held_out.x, slice(8)), held_out.y[:8]
    graph = export_model(module, loss, *few, lora=config.model.adapters).step
    export_seconds = time.perf_counter() - began
    x, y = batches.take(config.local.batch)
    with TemporaryDirectory() as folder:
        file = None if adapted is None else adapted.write(Path(folder) / "base")
        onnx = OnnxBackend(graph, flat.layout, model=module, base=file)
        trained = trial(onnx.gradient, theta, x, y)
        memory = onnx.measure(x, y)
    return ProjectCheck(
        model=module,
        parameters=flat.layout.parameters.size,
        held_out=len(held_out),
        training=training,
        overlap=0 if overlap is None else overlap.rows,
        labels=held_out.description.labels,
        trial=trained,
        memory=memory,
        graph=len(graph),
        export_seconds=export_seconds,
        update=None if config.coordination.traits.private else len(wire.encode(update)),
        selects=terms.select < 1,
        reach=_input_magnitude(x, len(y)),
        notes=(
            *filter(None, [note, "" if targets is None else target_advice(targets)]),
            *remarks(held_out, chosen=raw.numbers is not None or not scales_targets(loss)),
            *shifted,
        ),
        rate=_test_rate(config, terms, flat, batches, theta, held_out) if tests_rate else None,
    )


def _test_rate(
    config: Config,
    terms: Welcome,
    flat: FlatModule,
    batches: RawBatches,
    theta: NDArray[np.float32],
    held_out: Dataset,
) -> RangeTest:
    """The learning rate for the run's optimizers. In elastic averaging it is that of the devices."""
    elastic = config.coordination.traits.elastic
    regime, key = Regime.from_config(config), "coordination.learning_rate"
    if elastic:
        regime, key = replace(regime, learning_rate=config.local.rate), "local.rate"
    chosen = np.random.default_rng(config.model.seed).permutation(len(held_out))[:PROBE]
    x, y = rows(held_out.x, chosen), held_out.y[chosen]
    backend = _backend(config, flat.base_theta())
    if flat.layout.buffers:  # so that the probe's first loss is not of statistics that nobody measured
        theta = theta.copy()
        theta[flat.layout.parameters.size :] = backend.gradient(theta, x, y).statistics
    return range_test(
        *(backend, batches, terms, regime, theta),
        lambda theta: flat.evaluate(theta, x, y)[0],
        key,
        constant_loss(config.model.loss, held_out.y),
    )


def _backend(config: Config, base: NDArray[np.float32]) -> TorchBackend:
    """A device's backend, which has the frozen `base` if only adapters are trained."""
    model = config.model
    backend = TorchBackend(model.module, model.loss, seed=model.seed, lora=model.adapters)
    if base.size:
        backend.load_base(base)
    return backend


def target_advice(targets: Targets) -> str:
    """What to do about targets that models learn badly; empty if nothing is wrong with them."""
    return f"{targets.problem}; {REMEDY}" if targets.problem else ""


def _input_magnitude(x: Inputs, samples: int) -> float:
    """How far from 0 the numbers of a sample usually reach; 0 if all of them are whole, as of embeddings."""
    numbers = [array.reshape(samples, -1) for array in arrays_by_name(x).values() if array.dtype.kind == "f"]
    return float(np.median(np.abs(np.hstack(numbers)).max(axis=1))) if numbers else 0.0
