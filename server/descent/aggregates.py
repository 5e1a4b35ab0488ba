"""Aggregates: how the updates of a round become one gradient. The median tolerates bad updates.

    mean      sum_i S_i g_i / sum_i S_i: weighted by the sample counts that devices report
    median    for each parameter, the median of the sent entries (D. Yin et al., "Byzantine-robust
              distributed learning", ICML 2018, definition 1)

Updates are sparse. The median uses only the m of n updates that have an entry for a parameter. The result is
multiplied by m / n, as in a mean where the other entries are zero. Devices count alike, whatever samples they
report.

Operations are in float32 and in a fixed order, so that a replay gives the same bits.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.step import Step
from edgeflock.shared.plugins import Table

Vector = NDArray[np.float32]

Aggregate = Callable[[Sequence[Step], int], Vector]
"""(the steps of a round, in the order of the journal, P) -> the gradient to step with: [P]."""

MEAN = "mean"
"""The aggregate that needs no updates to be kept."""


def median(steps: Sequence[Step], size: int) -> Vector:
    """(m_k / n) median_i g_ik, over the m_k updates that hold k. Even m_k: the mean of two."""
    indices = np.concatenate([_indices(step, size) for step in steps])
    values = np.concatenate([step.delta for step in steps])
    order = np.lexsort((values, indices))
    indices, values = indices[order], values[order]
    entries, first, count = np.unique(indices, return_index=True, return_counts=True)
    cuts = (count - 1) // 2
    place = np.arange(indices.size) - np.repeat(first, count)
    retained = (place >= np.repeat(cuts, count)) & (place < np.repeat(count - cuts, count))
    total = np.bincount(np.repeat(np.arange(entries.size), count)[retained], values[retained], entries.size)
    result = np.zeros(size, np.float32)
    result[entries] = total / (count - 2 * cuts) * (count / len(steps))
    return result


def _indices(step: Step, size: int) -> NDArray[np.int64]:
    return np.arange(size) if isinstance(step.indices, slice) else step.indices


AGGREGATES: Table[Aggregate | None] = Table(
    "edgeflock.aggregates",
    {MEAN: None, "median": median},
    lambda found: found if callable(found) else None,
)
"""Aggregates by their name in `coordination.aggregate`. None: `Gathered` sums updates as they arrive."""
