"""Which entries of a gradient to send: the largest fraction c of each tensor.

AdaComp's selection (Hardy, Le Merrer, Sericola, 2017, section IV b): "only a fraction c of the largest
gradients per matrix V_l and vector beta_l are kept", which balances learning across layers.
"""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.layout import Layout

Gradient = NDArray[np.float32]

_SAMPLE = 2048


def select_largest(gradient: Gradient, layout: Layout, fraction: float) -> NDArray[np.int64]:
    """Strictly increasing indices of the round(c n) largest |entries| of each tensor of n, at least one.

    `gradient` is float32 [P], 0 < fraction <= 1. Exact zeros say nothing and are left out, but for one
    entry of a tensor that has nothing else.
    """
    magnitudes = np.abs(gradient)
    return np.concatenate(
        [
            _largest(magnitudes[t.start : t.stop], max(1, round(fraction * (t.stop - t.start)))) + t.start
            for t in layout.tensors
            if t.stop > t.start
        ]
    )


def _largest(magnitudes: Gradient, count: int) -> NDArray[np.int64]:
    """Indices of the `count` largest, in order; fewer if the rest are zeros.

    A threshold from a sample leaves about twice the entries that are wanted, and only these are
    partitioned: several times faster than partitioning all, and out of reach of numpy's slow path for
    arrays with many equal entries (most of a real gradient is exact zeros).
    """
    if count == 1:
        return np.array([magnitudes.argmax()])
    threshold = np.float32(0)
    if magnitudes.size > 2 * _SAMPLE:
        sample = magnitudes[:: magnitudes.size // _SAMPLE]
        beyond = 2 * count * sample.size // magnitudes.size + 8
        sample = sample[sample > 0]
        if sample.size > beyond:
            threshold = np.partition(sample, sample.size - 1 - beyond)[sample.size - 1 - beyond]
    candidates = np.flatnonzero(magnitudes > threshold)
    if candidates.size < count and threshold > 0:
        candidates = np.flatnonzero(magnitudes)
    if candidates.size > count:
        kept = np.argpartition(magnitudes[candidates], candidates.size - count)[-count:]
        candidates = np.sort(candidates[kept])
    return candidates if candidates.size else np.zeros(1, np.int64)
