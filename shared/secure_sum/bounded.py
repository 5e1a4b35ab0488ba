"""Gradients of a bounded norm as small integers: what devices add to a sum with differential privacy.

    x = g min(1, C / |g|) / s,    q = floor(x + u),    s = C / (2 sqrt(k))

over the k entries of a round, where u is uniform in [0, 1). Rounding may lengthen q. Then the device shortens
x and draws again, until |q|^2 <= 4 k, a comparison of integers: so s |q| <= C (conditional rounding: P.
Kairouz, Z. Liu and T. Steinke, "The distributed discrete Gaussian mechanism for federated learning with
secure aggregation", ICML 2021). The step s is public and the same for all tensors. A vector has no counts.

A device may add any integer modulo m, so that what another adds decides whether the sum passes from m/2 - 1
to -m/2. A sum x with |x| > m/4 is therefore read as sign(x) m/2 - x, which honest devices do not reach: one
device changes what is read by no more than it adds, whatever the others add.
"""

import math

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout
from edgeflock.shared.secure_sum.masks import Vector, VectorShape, centre
from edgeflock.shared.secure_sum.messages import SumAbandoned
from edgeflock.shared.secure_sum.quantiser import Contribution, DecodedSum, Quantiser, entry_width, largest_of

_STEPS = 4
"""Squared steps of C for each entry: C = 2 sqrt(k) s. Rounding then adds at most a 16th to the mean |q|^2."""

_MARGIN = 1 - 1e-6
"""Keeps decoded norms below C in spite of rounding to float32."""

_DRAWS = 20


class BoundedQuantiser:
    """Codes contributions to one round, each of a norm of at most `clip` once it is decoded."""

    def __init__(
        self, layout: Layout, positions: NDArray[np.int64], bits: int, devices: int, clip: float
    ) -> None:
        """As Quantiser. An entry has at most (2^(bits - 1) - 1) / 2 times clip / sqrt(k), k the entries."""
        self._largest, self._largest_square = largest_of(bits), _STEPS * positions.size
        step = clip * _MARGIN / math.sqrt(self._largest_square)
        self.ranges = np.full(len(layout.tensors), self._largest * step, np.float32)
        self._step = float(self.ranges[0]) / self._largest
        self.shape = VectorShape(positions.size, entry_width(bits, 2 * devices), 0)

    def quantise(
        self, contribution: Contribution, ranges: NDArray[np.float32], random: np.random.Generator
    ) -> Vector:
        """Return the integers to sum: uint32 [entries]. Raises SumAbandoned for other ranges."""
        if not np.array_equal(ranges, self.ranges):
            raise SumAbandoned("its ranges do not follow from the clip of the Welcome")
        return self.shape.reduce(self._round(contribution.values, random).astype(np.int64).astype(np.uint32))

    def decode(self, total: Vector, devices: int, ranges: NDArray[np.float32]) -> DecodedSum:
        """Return the sum of the vectors of `devices`."""
        found, half = centre(total, self.shape.width), 1 << (self.shape.width - 1)
        folded = np.where(2 * np.abs(found) > half, np.sign(found) * half - found, found)
        return DecodedSum((folded * self._step).astype(np.float32), 0, None, self.ranges)

    def _round(self, values: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float64]:
        """Return integers q with |q|^2 <= 4 k."""
        scaled = values.astype(np.float64) / self._step
        norm = float(np.linalg.norm(scaled))
        if not math.isfinite(norm):  # nothing of a gradient that is no number has a bound
            return np.zeros(scaled.size)
        scaled *= min(1.0, math.sqrt(self._largest_square) / max(norm, 1.0))
        for _ in range(_DRAWS):
            whole = np.floor(np.clip(scaled, -self._largest, self._largest) + random.random(scaled.size))
            whole = np.clip(whole, -self._largest, self._largest)
            if (square := float(whole @ whole)) <= self._largest_square:
                return whole
            scaled *= math.sqrt(self._largest_square / square)
        return np.trunc(np.clip(scaled, -self._largest, self._largest))  # no longer than `scaled`


def quantiser_of(
    layout: Layout, positions: NDArray[np.int64], bits: int, devices: int, clip: float
) -> Quantiser | BoundedQuantiser:
    """Return the code of a round. `clip` is the largest norm of what a device adds; 0: any."""
    if clip:
        return BoundedQuantiser(layout, positions, bits, devices, clip)
    return Quantiser(layout, positions, bits, devices)
