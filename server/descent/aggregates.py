"""Aggregates: how the updates of a round become one gradient. All but the mean tolerate bad updates.

    mean      sum_i S_i g_i / sum_i S_i: weighted by the sample counts that devices report
    median    for each parameter, the median of the sent entries (D. Yin et al., "Byzantine-robust
              distributed learning", ICML 2018, definition 1)
    trimmed   for each parameter, the mean without a fifth at either end (the same, definition 2)
    krum      the update that is closest to its n - f - 2 nearest ones, with f = (n - 3) / 2 bad updates
              (P. Blanchard et al., "Byzantine tolerant gradient descent", NIPS 2017, section 3)

Updates are sparse. `median` and `trimmed` use only the m of n updates that have an entry for a parameter.
The result is multiplied by m / n, as in a mean where the other entries are zero. `krum` compares whole
updates, so absent entries are zero. With all but `mean`, devices count alike, whatever samples they report.

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

_TRIM = 0.2
"""The fraction of a parameter's entries that is cut at either end."""

MEAN = "mean"
"""The aggregate that needs no updates to be kept."""


def median(steps: Sequence[Step], size: int) -> Vector:
    """(m_k / n) median_i g_ik, over the m_k updates that hold k. Even m_k: the mean of two."""
    return _trimmed_mean(steps, size, lambda count: (count - 1) // 2)


def trimmed(steps: Sequence[Step], size: int) -> Vector:
    """(m_k / n) mean_i g_ik, over the m_k updates that hold k, without the largest and smallest fifth.

    Each fifth is rounded up, as long as one entry is left.
    """
    return _trimmed_mean(
        steps, size, lambda count: np.minimum(np.ceil(_TRIM * count).astype(np.int64), (count - 1) // 2)
    )


def krum(steps: Sequence[Step], size: int) -> Vector:
    """The g_i with the smallest sum of |g_i - g_j|^2 over its n - f - 2 nearest j; if equal, the first."""
    dense = [_dense(step, size) for step in steps]
    near = len(steps) - max(0, (len(steps) - 3) // 2) - 2
    squares = [[float(np.square(one - other, dtype=np.float64).sum()) for other in dense] for one in dense]
    # Each row starts, when sorted, with the distance 0 of an update to itself.
    scores = [sum(sorted(row)[1 : 1 + max(1, near)]) for row in squares]
    return dense[int(np.argmin(scores))]


def _trimmed_mean(
    steps: Sequence[Step], size: int, cut: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> Vector:
    """For each parameter, the mean of its entries without `cut(m_k)` at either end, times m_k / n."""
    indices = np.concatenate([_indices(step, size) for step in steps])
    values = np.concatenate([step.delta for step in steps])
    order = np.lexsort((values, indices))
    indices, values = indices[order], values[order]
    entries, first, count = np.unique(indices, return_index=True, return_counts=True)
    cuts = cut(count)
    place = np.arange(indices.size) - np.repeat(first, count)
    retained = (place >= np.repeat(cuts, count)) & (place < np.repeat(count - cuts, count))
    total = np.bincount(np.repeat(np.arange(entries.size), count)[retained], values[retained], entries.size)
    result = np.zeros(size, np.float32)
    result[entries] = total / (count - 2 * cuts) * (count / len(steps))
    return result


def _indices(step: Step, size: int) -> NDArray[np.int64]:
    return np.arange(size) if isinstance(step.indices, slice) else step.indices


def _dense(step: Step, size: int) -> Vector:
    dense = np.zeros(size, np.float32)
    dense[step.indices] = step.delta
    return dense


AGGREGATES: Table[Aggregate | None] = Table(
    "edgeflock.aggregates",
    {MEAN: None, "median": median, "trimmed": trimmed, "krum": krum},
    lambda found: found if callable(found) else None,
)
"""Aggregates by their name in `coordination.aggregate`. None: `Gathered` sums updates as they arrive."""
