"""The limits of an engine, and checks that a device can send what the run asks for."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import KINDS
from edgeflock.server.engine.admission import EXPANSION_PER_ENTRY
from edgeflock.shared.environments import is_environment
from edgeflock.shared.errors import ConfigError, Malformed
from edgeflock.shared.model.chunks import MAX_CHUNKS, chunks
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Pull
from edgeflock.shared.selection import USUAL_BATCH, fraction_of, grow_fraction, quotas
from edgeflock.shared.settings.config import Config


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The limits on what an engine accepts and keeps."""

    updates: int = 0
    """Updates after which the run is complete; 0 for never."""
    expansion_bytes: int = 1 << 28
    """The most bytes that decoding one update may allocate."""
    snapshot_every: int = 1000
    """Updates between snapshots: the most that a restart replays."""
    keep_updates: bool = True
    """Whether update records older than the staleness window stay in the journal."""
    samples: int = 1 << 16
    """The most samples that one update may be computed from."""
    learning_rate: float = 0.0
    """The configured learning rate, which an evaluation may lower."""
    min_samples: int = 1
    """The fewest samples of an update: 0 in elastic averaging, for a chunk that goes with another one."""

    parameter: float = 60_000.0
    """The largest magnitude that a step may give a parameter: whole models may travel at half precision,
    which ends at 65,504."""

    @classmethod
    def from_config(cls, settings: Config) -> "EngineLimits":
        limits = settings.limits
        return cls(
            updates=settings.end.updates,
            expansion_bytes=limits.expansion_bytes,
            snapshot_every=settings.journal.snapshot_every,
            keep_updates=settings.journal.keep_updates,
            samples=limits.samples,
            learning_rate=settings.coordination.learning_rate,
            min_samples=0 if settings.coordination.traits.elastic else 1,
            parameter=limits.parameter,
        )

    def with_initial(self, parameters: NDArray[np.float32]) -> "EngineLimits":
        """Return the limits for a run that begins with these parameters, which may be large themselves."""
        return replace(self, parameter=max(self.parameter, 2 * float(np.abs(parameters).max())))


_OVERHEAD = 1 << 15
"""Bytes of a message besides indices and values: 32 facts, names and texts of 100 characters of 4 bytes."""

_ROW_BYTES = 1_000_000_000
"""The most bytes of a row in SQLite by default (SQLITE_MAX_LENGTH)."""

_SAMPLES_BYTES = 1 << 24
"""The most bytes of a Samples record. Only devices know the shape of a sample, so this is a constant."""

PRIVATE_FRACTION = 0.1
"""The usual part of a model's entries in a secure sum (docs/results/private-sums.md)."""

_SELECT_INTERVAL = 5
"""A device with more versions than this between two of its updates sends more than the usual fraction."""


def frame_bytes(config: Config, layout: Layout) -> int:
    """Return the most bytes of a device's message: limits.frame_bytes, or the largest update if that is 0.

    An update takes 8 bytes a parameter (index, value) and 2 a running statistic. Samples may take more.
    """
    if config.limits.frame_bytes:
        return config.limits.frame_bytes
    update = _OVERHEAD + 8 * layout.parameters.size + 2 * layout.buffers
    shares = config.injection.alpha > 0 and config.injection.beta > 0
    return max(update, _SAMPLES_BYTES) if shares else update


def requested_slice(pull: Pull, layout: Layout) -> slice | None:
    """Return the parameters that `pull` asks for; None: all. Raises Malformed if the model lacks them."""
    if not pull.start and not pull.stop:
        return None
    if not pull.start < pull.stop <= layout.parameters.size:
        raise Malformed(
            f"the model has no parameters {pull.start} to {pull.stop}, but {layout.parameters.size}; "
            "pull all of them"
        )
    return slice(pull.start, pull.stop)


def snapshot_bytes(config: Config, layout: Layout) -> int:
    """Return the bytes of a snapshot: theta, the averaged model, and the optimizer's state."""
    numbers = KINDS.resolve(config.optimizer.kind).columns + config.coordination.traits.buffers
    vectors = 1 + (config.coordination.average > 0)
    return 4 * (vectors * layout.size + numbers * layout.parameters.size)


def select_interval(config: Config) -> int:
    """Return the versions between updates above which a device sends more than usual; 0: it never does."""
    traits = config.coordination.traits
    return 0 if config.compression.select or traits.rounds or traits.elastic else _SELECT_INTERVAL


def usual_fraction(config: Config, layout: Layout) -> float:
    """Return the fraction of a gradient's entries that a device sends, unless it sends rarely.

    It grows with the batch size, but not in an environment, where samples follow each other.
    """
    if config.coordination.traits.private:
        return config.compression.select or PRIVATE_FRACTION
    grows = select_interval(config) and not is_environment(config.model.data)
    return fraction_of(config.compression.select, layout, config.local.batch if grows else USUAL_BATCH)


def check_limits(config: Config, layout: Layout) -> None:
    """Raise ConfigError if updates of `config` would be refused, or the journal cannot keep the model."""
    snapshot = snapshot_bytes(config, layout)
    if snapshot > _ROW_BYTES and not config.journal.url.startswith("postgres"):
        raise ConfigError(
            f"a snapshot of {layout.size} parameters with coordination.average = "
            f"{config.coordination.average:g} and optimizer.kind = {config.optimizer.kind!r} takes "
            f"{snapshot} bytes, and SQLite keeps {_ROW_BYTES} at most; set coordination.average = 0, another "
            "optimizer, or a smaller model"
        )
    threshold = config.compression.threshold
    usual = usual_fraction(config, layout)
    select = grow_fraction(usual, math.inf, select_interval(config), layout)
    size = layout.parameters.size
    if config.compression.selection == "significance":
        selected = size
    else:
        selected = 0 if select == 1 else sum(quotas(layout.parameters, select, config.compression.balance))
    whole = size if select == 1 or threshold else 0
    entries = max(selected, whole)
    worst = 1024 + max(8 * selected, 4 * whole) + 2 * layout.buffers
    if EXPANSION_PER_ENTRY * entries > config.limits.expansion_bytes:
        raise ConfigError(
            f"limits.expansion_bytes = {config.limits.expansion_bytes}: an update of {entries} entries "
            f"expands to {EXPANSION_PER_ENTRY * entries}; raise it"
        )
    longest = frame_bytes(config, layout)
    if longest > config.limits.inflight_bytes:
        raise ConfigError(
            f"limits.inflight_bytes = {config.limits.inflight_bytes}: a message may take {longest} "
            "(limits.frame_bytes); raise it"
        )
    if worst > longest:
        raise ConfigError(
            f"limits.frame_bytes = {config.limits.frame_bytes}: an update of {size} parameters at "
            f"compression.select = {select}, threshold = {threshold} may take {worst}; raise it"
        )
    coordination = config.coordination
    if coordination.traits.elastic and len(chunks(layout, coordination.chunk)) > MAX_CHUNKS:
        raise ConfigError(
            f"coordination.chunk = {coordination.chunk}: {size} parameters make more than "
            f"{MAX_CHUNKS} chunks of this size, and each is an exchange; raise it"
        )
    if coordination.traits.private and layout.buffers:
        raise ConfigError(
            'coordination.mode = "private": the model keeps running statistics, which devices would send one '
            "by one; use a model without batch normalization, e.g. with GroupNorm"
        )
    samples = config.local.batch * config.local.steps
    if samples > config.limits.samples:
        raise ConfigError(
            f"limits.samples = {config.limits.samples}: local.steps = {config.local.steps} of "
            f"local.batch = {config.local.batch} take {samples}; raise it"
        )
