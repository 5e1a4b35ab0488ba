"""Encodes the selected entries of a gradient as an Update record."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.training.selector import Selection
from edgeflock.shared.codecs import entries, values
from edgeflock.shared.errors import Diverged
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Update


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """The result of the local steps of one update, or of a single step."""

    loss: float
    """Mean over the batches."""
    gradient: NDArray[np.float32]
    """The sum of their directions (local.py), which are mostly their gradients: float32 [P]."""
    statistics: NDArray[np.float32]
    """The running statistics, the batches' mean: float32 [B]."""
    samples: int


def encode_update(
    steps: LocalSteps, selection: Selection, layout: Layout, sequence: int, base: int
) -> Update:
    """Encode the `selection` of the result of `steps` from the model at version `base`.

    `layout` is that of the P trained parameters. The running statistics follow the values. Raises Diverged.
    """
    where = selection.positions
    kept = selection.gradient if where is None else selection.gradient[where]
    if not np.isfinite(kept).all():  # single gradients are finite; sums may not be
        raise Diverged("the update holds NaN or infinity: lower coordination.learning_rate or run.local_rate")
    coded = entries.encode(kept, where, layout, selection.indices, selection.values)
    return Update(
        sequence=sequence,
        base=base,
        index_mode=coded.index_mode,
        value_mode=coded.value_mode,
        count=kept.size,
        indices=coded.indices,
        values=coded.values + values.encode_statistics(steps.statistics),
        loss=steps.loss,
        samples=steps.samples,
        pull=True,
    )
