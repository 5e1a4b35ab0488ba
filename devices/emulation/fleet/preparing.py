"""Preparation of a fleet: load the data of a fleet file, deal them out, and try them on the model."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.server.engine import check_limits
from edgeflock.server.evaluation import episodes
from edgeflock.server.evaluation.episodes import EpisodeScores
from edgeflock.server.evaluation.metrics import UserMetric
from edgeflock.server.evaluation.scoring import Scores
from edgeflock.server.findings import REMEDY, Targets
from edgeflock.server.hosting import trusting
from edgeflock.shared.data import datasets
from edgeflock.shared.data.datasets import Dataset
from edgeflock.shared.environments import Environment, is_environment, open_environment
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import rows
from edgeflock.shared.model.gradient import SAMPLES
from edgeflock.shared.model.held_out import Overlap, sketch_of
from edgeflock.shared.model.losses import scales_targets
from edgeflock.shared.model.modules.building import Make
from edgeflock.shared.model.torch_module import FlatModule

log = logging.getLogger(__name__)

_EXAMPLE_SAMPLES = 2
"""Samples that show the shapes of an environment."""


@dataclass(frozen=True, slots=True)
class PreparedFleet:
    """A fleet file with its data, checked against each other."""

    file: FleetFile
    shares: list[Dataset]
    """The samples that each device trains on. Empty if devices act in an environment."""
    test: Dataset
    """The held-out data. For an environment, a few samples that show its shapes."""
    flops: int
    """Floating-point operations of one step."""
    make: Make | None = None
    """Builds the model, if no import string does."""
    metrics: Mapping[str, UserMetric] = field(default_factory=dict)
    """Metrics that the calling program defines."""
    targets: Targets | None = None
    """The targets of a regression that are not scaled."""
    environment: Environment | None = None
    """The environment whose episodes the model is evaluated on."""
    environments: Mapping[str, Environment] = field(default_factory=dict)
    """Class of devices -> the environment in which they act."""


@dataclass(frozen=True, slots=True)
class FleetObjects:
    """Objects of the calling program that replace what a fleet file names."""

    train: Dataset | None = None
    test: Dataset | None = None
    make: Make | None = None
    metrics: Mapping[str, UserMetric] = field(default_factory=dict)
    """Metrics in addition to those that model.metrics names."""


def prepare(file: FleetFile, objects: FleetObjects = FleetObjects()) -> PreparedFleet:
    """Load what `file` names, unless `objects` has it.

    Raises ConfigError if the data cannot be dealt out or do not fit the model.
    """
    fleet = file.fleet
    if not file.model.data:
        raise ConfigError("model.data = '': a fleet needs held-out data to evaluate on")
    acts = is_environment(file.model.data)
    episodes.check(file, acts=acts)
    if acts or is_environment(fleet.data):
        return _prepare_acting(file, objects)
    scaled = scales_targets(file.model.loss)
    test = objects.test or _load(file.model.data, "test", scales_targets=scaled)
    description = test.description.reported
    train = objects.train or _load(fleet.data, "train", description)
    samples = fleet.samples or len(train)
    if samples > len(train):
        raise ConfigError(f"fleet.samples = {samples}: fleet.data = {fleet.data!r} has only {len(train)}")
    if fleet.devices > samples:
        raise ConfigError(
            f"fleet.devices = {fleet.devices}: there are only {samples} samples, and a device needs one at "
            f"least (fleet.data = {fleet.data!r})"
        )
    if objects.train is None:
        shares = _deal(fleet.data, fleet.devices, samples, fleet.labels, description)
    else:
        shares = _split(train, fleet.devices, samples, fleet.labels)
    if fleet.devices > file.limits.devices:
        raise ConfigError(
            f"fleet.devices = {fleet.devices}: limits.devices = {file.limits.devices}; raise it"
        )
    targets = Targets.from_y(test.y) if scaled and not test.description.target else None
    _warn_about_data(train, test, targets, source=fleet.data)
    settings = file.model
    flat = FlatModule(settings.module, settings.loss, make=objects.make, lora=settings.adapters)
    check_limits(file, flat.layout)
    scores = Scores(file.model.metrics, objects.metrics)
    scores.set_scale(test.description.target)
    try:
        flat.evaluate(flat.theta(), rows(test.x, slice(SAMPLES)), test.y[:SAMPLES], on_batch=scores.update)
        flops = flat.flops(rows(train.x, slice(file.local.batch)), train.y[: file.local.batch])
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise ConfigError(
            f"model.module = {file.model.module!r} does not fit fleet.data = {fleet.data!r} with "
            f"model.data = {file.model.data!r}: {error}"
        ) from error
    scores.check()
    return PreparedFleet(file, shares, test, flops, objects.make, objects.metrics, targets)


def _prepare_acting(file: FleetFile, objects: FleetObjects) -> PreparedFleet:
    """Prepare a fleet whose devices act in environments. Raises ConfigError."""
    fleet = file.fleet
    data = [fleet.data, file.model.data, *(kind.data for kind in file.classes.values() if kind.data)]
    if not all(map(is_environment, data)) or objects.train or objects.test:
        raise ConfigError(
            f"fleet.data = {fleet.data!r}, model.data = {file.model.data!r}: some are environments, and some "
            "are not; name one in each, e.g. gym:CartPole-v1"
        )
    refused = {"fleet.samples": fleet.samples, "fleet.labels": fleet.labels}
    for name, kind in file.classes.items():
        refused[f"devices.{name}.rate"] = kind.rate != "0"
        refused[f"devices.{name}.shares"] = kind.shares
    for key, value in refused.items():
        if value:
            raise ConfigError(f"{key}: devices act in an environment and have no samples; leave it out")
    if trusting.is_wanted(file.defence.mode):
        raise ConfigError(
            f"defence.mode = {file.defence.mode!r} needs held-out samples, and an environment has none; set "
            "defence.mode = 'clip'"
        )
    test = open_environment(file.model.data)
    environments = {name: open_environment(kind.data or fleet.data) for name, kind in file.classes.items()}
    for env in environments.values():
        if (env.shape, env.actions, env.discrete) != (test.shape, test.actions, test.discrete):
            raise ConfigError(
                f"{env.uri!r} and model.data = {test.uri!r} have other observations or actions: one policy "
                "cannot act in both"
            )
    flat = FlatModule(file.model.module, file.model.loss, make=objects.make)
    check_limits(file, flat.layout)
    EpisodeScores(flat, test)
    x, y = test.example(file.local.batch)
    example, flops = Dataset(x[:_EXAMPLE_SAMPLES], y[:_EXAMPLE_SAMPLES]), flat.flops(x, y)
    return PreparedFleet(file, [], example, flops, objects.make, environment=test, environments=environments)


def _warn_about_data(train: Dataset, test: Dataset, targets: Targets | None, *, source: str) -> None:
    """Log warnings about targets and held-out data that make a run's results useless."""
    if targets is not None and targets.problem:
        log.warning("%s; %s", targets.problem, REMEDY)
    if (sketch := sketch_of("fleet", test.x, test.y)) is not None:
        overlap = Overlap("fleet", sketch)
        overlap.add_stored(train.x, train.y)
        if overlap.rows:
            log.warning(
                "fleet.data = %r has about %d of the %d rows that the model is evaluated on (model.data), "
                "so evaluations are too good; name other rows, such as with held=0.2 in both",
                *(source, overlap.rows, len(test)),
            )


@lru_cache(maxsize=4)
def _load(
    data: str, split: str, description: Description | None = None, *, scales_targets: bool = False
) -> Dataset:
    """Load data, and cache them for the next run on the same data."""
    return datasets.load(data, split, description, scales_targets=scales_targets)


@lru_cache(maxsize=1)
def _deal(
    data: str, devices: int, samples: int, labels: int, description: Description | None
) -> list[Dataset]:
    return _split(_load(data, "train", description), devices, samples, labels)


def _split(train: Dataset, devices: int, samples: int, labels: int) -> list[Dataset]:
    if labels:
        return datasets.deal_by_label(train, devices, labels, samples)
    return datasets.deal(train, devices, samples)
