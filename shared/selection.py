"""Selection of the entries of a gradient to send, and the memory of the rest. Pure functions.

The largest fraction c of the entries of each tensor: "only a fraction c of the largest gradients per matrix
V_l and vector beta_l are kept" (AdaComp; Hardy, Le Merrer, Sericola, 2017, section IV b). That balances
learning across layers.

Or the entries that would change their parameter significantly, by more than a threshold times its value
(D. Svoboda and A. Aggarwal, "Communication efficient distributed SGD", algorithm 2, line 3, with the filter
of K. Hsieh et al., "Gaia", NSDI 2017).

Error feedback: the entries that an update leaves out are kept and added to the next gradient (Seide, Fu,
Droppo, Li and Yu, "1-bit stochastic gradient descent", Interspeech 2014; for sparse updates Stich, Cordonnier
and Jaggi, "Sparsified SGD with memory", NeurIPS 2018). In a large asynchronous fleet kept entries are old
when they are sent. Kept without decay (feedback 1), they do harm. So the memory decays with its age in
versions of the model: the same setting serves 4 devices and 200. A sent entry leaves the memory completely,
even if the value coding rounded it.

Adaptive compression (ScaDLES, section IV, "High communication cost"): a device sends

    Topk(g)  if  | |g|^2 - |Topk(g)|^2 | / |g|^2 <= delta,  else g

where both squared norms are exponentially weighted moving averages over its steps.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout

Gradient = NDArray[np.float32]

_SAMPLE = 2048


def select_largest(
    gradient: Gradient, layout: Layout, fraction: float, balance: float = 1.0
) -> NDArray[np.int64]:
    """Return strictly increasing indices of the largest |entries| of each tensor, about fraction P in all.

    `gradient` is float32 [P], 0 < fraction <= 1. `quotas` gives the number for each tensor. Exact zeros carry
    no information and are left out, so frozen tensors send nothing. If the whole gradient is zero, one entry
    is sent.
    """
    magnitudes = np.abs(gradient)
    selected = [
        _largest(magnitudes[t.start : t.stop], quota) + t.start
        for t, quota in zip(layout.tensors, quotas(layout, fraction, balance), strict=True)
        if quota
    ]
    found = np.concatenate(selected)
    return found if found.size else np.zeros(1, np.int64)


USUAL_BATCH = 10
"""Samples of a gradient for which sqrt(P) entries are sent."""

_GROWTH = 8
"""The largest factor for a device that sends rarely, and"""
_MAX_FACTOR = 16
"""the largest multiple of sqrt(P) entries for any reason."""


def fraction_of(select: float, layout: Layout, batch: int = USUAL_BATCH) -> float:
    """Return `select`; if it is 0, the fraction of sqrt(P) entries of P parameters.

    For more than ten samples that is multiplied by (batch / 10)^1.2, at most 16. The information in a
    gradient grows more slowly than the model: measured from 38,282 parameters to 333,194 and from 4 devices
    to 200 (docs/benchmarks.md). A gradient of more samples has less noise, so that more entries are worth
    their bytes (docs/compression.md).
    """
    times = min(float(_MAX_FACTOR), max(1.0, batch / USUAL_BATCH) ** 1.2)
    return select or float(min(0.5, times * layout.parameters.size**-0.5))


def grow_fraction(fraction: float, interval: float, usual: int, layout: Layout) -> float:
    """Return the part of a gradient to send if `interval` versions lie between two updates of the device.

    Up to `usual` versions it is `fraction`. Beyond, it grows in proportion: at most eight times, up to 16
    times sqrt(P) entries and 0.5. usual = 0: it never grows.

    With n active devices, an unsent entry waits for about P / (fraction P) updates of n versions each.
    Without growth, a device of a large fleet, or a slow one, would send ever older gradients.
    """
    if not usual or interval <= usual:
        return fraction
    limit = min(0.5, float(_MAX_FACTOR * layout.parameters.size**-0.5))
    return max(fraction, min(limit, fraction * min(_GROWTH, interval / usual)))


@lru_cache(maxsize=64)
def quotas(layout: Layout, fraction: float, balance: float) -> tuple[int, ...]:
    """The number of entries that each tensor of n sends: its share of fraction P, as n^balance; 1 to n.

    At balance 1 that is AdaComp's round(fraction n). Below 1 small tensors get more. Most of a network's
    entries lie in one or two large matrices, so at tiny fractions every other tensor would send one entry.
    """
    sizes = np.diff(layout.bounds)
    weights = np.where(sizes > 0, sizes.astype(np.float64) ** balance, 0.0)
    shares = np.rint(fraction * (layout.size * weights / weights.sum())).astype(np.int64)
    return tuple(np.clip(shares, 1, sizes).tolist())


def _largest(magnitudes: Gradient, count: int) -> NDArray[np.int64]:
    """Indices of the `count` largest, in order; fewer if the rest are zeros.

    A threshold from a sample leaves about twice as many entries as needed, and only these are partitioned.
    That is several times faster than a partition of all. It also avoids numpy's slow path for arrays with
    many equal entries (most of a real gradient is exact zeros).
    """
    if count == 1:
        largest = magnitudes.argmax()
        return np.array([largest] if magnitudes[largest] else [], np.int64)
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
        among = magnitudes[candidates]
        smallest = np.partition(among, among.size - count)[among.size - count]
        candidates = candidates[among >= smallest]
        if candidates.size > count:  # drop the last of the entries that equal the smallest kept one
            equal = np.flatnonzero(magnitudes[candidates] == smallest)
            candidates = np.delete(candidates, equal[count - candidates.size :])
    return candidates


def select_significant(accumulated: Gradient, parameters: Gradient, threshold: float) -> NDArray[np.int64]:
    """Return strictly increasing indices where |accumulated| > threshold |parameters|, of two float32 [P].

    The result may be empty; at threshold 0 it has all but exact zeros. An accumulated change of a parameter
    of 0 is significant at any threshold.
    """
    with np.errstate(over="ignore"):  # an infinite bound selects nothing
        return np.flatnonzero(np.abs(accumulated) > np.float32(threshold) * np.abs(parameters))


def decay_threshold(threshold: float, update: int) -> float:
    """Return threshold / sqrt(t) for the t-th update, t >= 1 (Gaia, section 4.2).

    As training converges, smaller changes matter.
    """
    return threshold / math.sqrt(update)


HORIZON = 1000
"""Versions after which the part `feedback` of the memory is left."""


def decay_of(feedback: float, versions: int) -> float:
    """The part of the memory that is left after `versions` versions: feedback^(versions / HORIZON)."""
    return float(feedback ** (max(1, versions) / HORIZON))


def recall(memory: Gradient | None, gradient: Gradient) -> Gradient:
    """Return the gradient plus the memory, if there is one: float32 [P]. The result overwrites `memory`."""
    return gradient if memory is None else np.add(memory, gradient, out=memory)


def remember(corrected: Gradient, sent: NDArray[np.int64] | slice, decay: float) -> Gradient:
    """Return the memory of `corrected` (float32 [P]) after the entries at `sent` were sent."""
    memory = corrected * np.float32(decay)
    memory[sent] = 0
    return memory


WEIGHT = 0.1
"""The weight of the newest gradient in the averages, which cover about the last 20. The paper gives none.

On MNIST (10 samples a step, a tenth selected) the lost part of |g|^2 has a standard deviation of 0.029 from
step to step. Averaged with this weight it is 0.011: the rule follows training, not the noise of a batch.
"""


@dataclass(frozen=True, slots=True)
class NormAverages:
    """Moving averages of squared norms."""

    whole: float
    """|g|^2, of the gradients."""
    selected: float
    """|Topk(g)|^2, of the selected entries."""


def follow_norms(norms: NormAverages | None, gradient: Gradient, indices: NDArray[np.int64]) -> NormAverages:
    """Return the averages with `gradient` (float32 [P]), of which `indices` is selected. None starts them."""
    newest = NormAverages(_squared_norm(gradient), _squared_norm(gradient[indices]))
    if norms is None:
        return newest
    return NormAverages(
        norms.whole + WEIGHT * (newest.whole - norms.whole),
        norms.selected + WEIGHT * (newest.selected - norms.selected),
    )


def is_sufficient(norms: NormAverages, delta: float) -> bool:
    """Whether the selection loses at most the part delta of |g|^2."""
    return abs(norms.whole - norms.selected) <= delta * norms.whole


def _squared_norm(gradient: Gradient) -> float:
    """The squared norm in double precision: single precision overflows at entries of 1e19."""
    return float(np.einsum("i,i->", gradient, gradient, dtype=np.float64))
