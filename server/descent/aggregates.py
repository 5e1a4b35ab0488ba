"""How the updates of a round come together, where their mean is not to be trusted.

    mean      sum_i S_i g_i / sum_i S_i: by samples, as devices tell them
    median    of each parameter the middle one of those that were sent (D. Yin et al., "Byzantine-robust
              distributed learning", ICML 2018, definition 1)
    trimmed   of each parameter the mean without a fifth at either end (the same, definition 2)
    krum      the one update that is closest to its n - f - 2 nearest, of f = (n - 3) / 2 bad ones
              (P. Blanchard et al., "Byzantine tolerant gradient descent", NIPS 2017, section 3)

Updates are sparse. What is absent from one says nothing of a parameter to median and trimmed: they are of
those that sent it, m of n, and m / n of that counts, as much as of a mean in which the others are zero. To
krum, which compares whole updates, what is absent is zero. But for `mean` all devices count alike, whatever
samples they tell of.

float32 in a fixed order, so that a replay gives the same bits.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.step import Step
from edgeflock.shared.plugins import Table

Vector = NDArray[np.float32]

Aggregate = Callable[[Sequence[Step], int], Vector]
"""(the steps of a round, in the order of the journal, P) -> the gradient to step with: [P]."""

_TRIMMED = 0.2
"""Of those that sent a parameter, at either end."""

MEAN = "mean"
"""Needs none of the updates to be kept."""


def median(steps: Sequence[Step], size: int) -> Vector:
    """(m_k / n) median_i g_ik, over the m_k updates that hold k; of an even number the mean of two."""
    return _between(steps, size, lambda count: (count - 1) // 2)


def trimmed(steps: Sequence[Step], size: int) -> Vector:
    """(m_k / n) mean_i g_ik, over the m_k updates that hold k without the largest and smallest fifth, rounded
    up, as long as one is left.
    """
    return _between(
        steps, size, lambda count: np.minimum(np.ceil(_TRIMMED * count).astype(np.int64), (count - 1) // 2)
    )


def krum(steps: Sequence[Step], size: int) -> Vector:
    """g_i of the smallest sum of |g_i - g_j|^2 over its n - f - 2 nearest j; of several such the first."""
    dense = [_dense(step, size) for step in steps]
    near = len(steps) - max(0, (len(steps) - 3) // 2) - 2
    squares = [[float(np.square(one - other, dtype=np.float64).sum()) for other in dense] for one in dense]
    # Each is at distance 0 of itself, which comes first.
    scores = [sum(sorted(row)[1 : 1 + max(1, near)]) for row in squares]
    return dense[int(np.argmin(scores))]


def _between(
    steps: Sequence[Step], size: int, cut: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> Vector:
    """The mean of what is left of each parameter's entries without `cut` of them at either end, by their part
    of the updates.
    """
    where = np.concatenate([_indices(step, size) for step in steps])
    values = np.concatenate([step.delta for step in steps])
    order = np.lexsort((values, where))
    where, values = where[order], values[order]
    at, first, count = np.unique(where, return_index=True, return_counts=True)
    out = cut(count)
    place = np.arange(where.size) - np.repeat(first, count)
    kept = (place >= np.repeat(out, count)) & (place < np.repeat(count - out, count))
    total = np.bincount(np.repeat(np.arange(at.size), count)[kept], values[kept], at.size)
    result = np.zeros(size, np.float32)
    result[at] = total / (count - 2 * out) * (count / len(steps))
    return result


def _indices(step: Step, size: int) -> NDArray[np.int64]:
    return np.arange(size) if isinstance(step.where, slice) else step.where


def _dense(step: Step, size: int) -> Vector:
    dense = np.zeros(size, np.float32)
    dense[step.where] = step.delta
    return dense


def aggregate_of(found: Any) -> Aggregate | None:
    """A function of (steps, size)."""
    return found if callable(found) else None


AGGREGATES: Table[Aggregate | None] = Table(
    "edgeflock.aggregates", {MEAN: None, "median": median, "trimmed": trimmed, "krum": krum}, aggregate_of
)
"""By the name that `coordination.aggregate` gives them. None: `Gathered` sums as they come."""
