"""The checks that an update must pass before it changes the model."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Step
from edgeflock.shared.codecs import compiled_entries, labels, moments, values
from edgeflock.shared.errors import (
    BadSamples,
    BadStatistics,
    BaseExpired,
    BaseInFuture,
    ExpansionTooLarge,
    NonFinite,
    WrongDtype,
)
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Update

EXPANSION_PER_ENTRY = 12
"""Bytes that one entry takes once decoded: an int64 index and a float32 value."""


def admit(
    update: Update,
    layout: Layout,
    *,
    oldest: int,
    version: int,
    samples: int,
    expansion_bytes: int,
    min_samples: int = 1,
) -> Step:
    """Decode `update`, or raise the Refused that names its error. Cheap checks come first.

    Bases from `oldest` to `version` are admitted, and `min_samples` to `samples` samples, which may be the
    weight. `expansion_bytes` bounds the memory that decoding allocates.
    """
    if update.base > version:
        raise BaseInFuture(f"base {update.base} is ahead of the model's version {version}; pull first")
    if update.base < oldest:
        raise BaseExpired(f"base {update.base} is older than {oldest}, the oldest admitted; pull again")
    if not min_samples <= update.samples <= samples:
        range = f"{min_samples} to {samples} samples (limits.samples), not {update.samples}"
        raise BadSamples(f"an update must be of {range}")
    if update.count * EXPANSION_PER_ENTRY > expansion_bytes:
        raise ExpansionTooLarge(
            f"{update.count} entries expand to {update.count * EXPANSION_PER_ENTRY} bytes; "
            f"limits.expansion_bytes is {expansion_bytes}"
        )
    if update.moments:
        moments.decode(update.moments, layout.parameters)
    if update.labels:
        labels.decode(update.labels)
    if layout.buffers:
        return _admit_with_statistics(update, layout)
    return _admit(update, layout)


def _admit_with_statistics(update: Update, layout: Layout) -> Step:
    """Decode an update of a model with running statistics, which are the end of its values."""
    end = 2 * layout.buffers
    try:
        step = _admit(replace(update, values=update.values[:-end]), layout.parameters)
    except WrongDtype as error:
        raise WrongDtype(f"{error}; the last {end} bytes are {layout.buffers} running statistics") from error
    octets = update.values[-end:]
    if len(octets) != end:
        raise WrongDtype(f"{layout.buffers} running statistics take {end} bytes, not {len(octets)}")
    statistics = values.decode_statistics(octets)
    if not np.isfinite(statistics).all():
        raise NonFinite("the running statistics hold NaN or infinity; check the data")
    return replace(step, statistics=statistics)


def check_statistics(statistics: NDArray[np.float32], layout: Layout) -> None:
    """Raise BadStatistics if a running variance in `statistics`, of [B], is below 0.

    A replay does not call this: earlier versions admitted such updates.
    """
    wrong = (statistics < 0) & layout.variances
    if not wrong.any():
        return
    place = int(wrong.argmax()) + layout.parameters.size
    tensor = next(tensor for tensor in layout.tensors if tensor.start <= place < tensor.stop)
    raise BadStatistics(
        f"{tensor.name}[{place - tensor.start}] = {statistics[wrong][0]:g} is a running variance, which "
        "is never below 0; look at the client that sends it"
    )


def _admit(update: Update, layout: Layout) -> Step:
    """Decode an update of trained parameters only."""
    indices, delta = compiled_entries.decode(
        update.index_mode, update.value_mode, update.count, update.indices, update.values, layout
    )
    return Step(update.base, indices, delta, samples=update.samples)
