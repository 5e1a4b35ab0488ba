"""From what was selected of a gradient to the Update record."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.training.selector import Selection
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import Diverged
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Update


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """What the steps on a few batches came to."""

    loss: float
    """Mean over the batches."""
    gradient: NDArray[np.float32]
    """Their gradients' sum: float32 [P]."""
    statistics: NDArray[np.float32]
    """The running statistics that they came to, the batches' mean: float32 [B]."""
    samples: int


def encode_update(
    steps: LocalSteps, selection: Selection, layout: Layout, sequence: int, base: int
) -> Update:
    """What `steps` from the model at version `base` came to, of which `selection` is sent, encoded.

    `layout` is that of the P trained parameters. The running statistics follow the values. Raises Diverged.
    """
    where = selection.where
    kept = selection.gradient if where is None else selection.gradient[where]
    if not np.isfinite(kept).all():  # single gradients were; what is remembered or summed may not be
        raise Diverged("the update holds NaN or infinity: lower coordination.learning_rate or run.local_rate")
    index_mode, value_mode, indices, octets = _encode(
        kept, where, layout, selection.indices, selection.values
    )
    return Update(
        sequence=sequence,
        base=base,
        index_mode=index_mode,
        value_mode=value_mode,
        count=kept.size,
        indices=indices,
        values=octets + values.encode_statistics(steps.statistics),
        loss=steps.loss,
        samples=steps.samples,
        pull=True,
    )


def _encode(
    kept: NDArray[np.float32],
    where: NDArray[np.int64] | None,
    layout: Layout,
    index_mode: int,
    value_mode: int,
) -> tuple[int, int, bytes, bytes]:
    """(index mode, value mode, index stream, value stream).

    What a grid cannot say, or not in fewer bytes, goes in Golomb's code and a sign bit for each value.
    """
    if index_mode == sparse.GRID:
        plain = _encode(kept, where, layout, sparse.GOLOMB, values.CODINGS["sign"].mode)
        if where is None:
            return plain
        # numba, where it is installed, takes half a second to import, and nothing else on a device needs it.
        from edgeflock.shared.codecs import grid

        signed = grid.encode(where, kept < 0, layout)
        scales = values.encode(kept, layout.counts(where), "scale")
        if signed is None or len(signed) + len(scales) > len(plain[2]) + len(plain[3]):
            return plain
        return sparse.GRID, value_mode, signed, scales
    octets = values.encode(kept, layout.counts(where), values.name_of(value_mode))
    if where is None:
        return sparse.DENSE, value_mode, b"", octets
    return index_mode, value_mode, sparse.encode(where, layout.size, index_mode), octets
