"""Adafactor on a device: each entry of a gradient is divided by how large it usually is.

    v <- decay v + (1 - decay) g^2,    v^ = v / (1 - decay^t)
    d_tau = max(0.05, RMS(theta_tau)) g_tau / (sqrt(v^_tau) + 10^-8)          for each tensor tau

A gradient counts as at most 10 times as large as usual, entry by entry, once 10 were seen: one outlier does
not silence an entry for long.

Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018: the relative
step of section 8 (algorithm 5), with v whole, a constant decay, and no clipping of the direction. It has no
momentum: staleness acts as one. The device scales before it selects what to send, so that it selects among
steps. v stays on the device from update to update: 4 bytes a parameter. A device that starts again begins it
anew.
"""

import math

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout

Vector = NDArray[np.float32]

LEAST_SCALE = 0.05
"""The RMS that a tensor of smaller numbers counts as: one that begins at 0 must be able to leave it."""

_USUAL = 10
"""Gradients after which the usual size of an entry is known, and times that size that count at most."""

_EPSILON = np.float32(1e-8)
_LARGEST = np.float32(1e18)
"""Its square is in float32."""


class Adafactor:
    """The running mean of a device's squared gradients."""

    def __init__(self, layout: Layout, decay: float) -> None:
        """`layout` is that of the P trained parameters; 0 < decay < 1."""
        self._bounds = layout.bounds
        self._decay = decay
        self._squares: Vector = np.zeros(layout.size, np.float32)
        self._scratch: Vector = np.empty(layout.size, np.float32)
        self._steps = 0

    def direction(self, theta: Vector, gradient: Vector) -> Vector:
        """d of `gradient` at theta, both float32 [P], which are left as they are. A new array."""
        self._steps += 1
        direction = np.clip(gradient, -_LARGEST, _LARGEST)
        square, squares = self._scratch, self._squares
        if self._steps > _USUAL:
            np.multiply(squares, np.float32(_USUAL**2 / (1 - self._decay ** (self._steps - 1))), out=square)
            np.sqrt(square, out=square)
            np.copyto(square, _LARGEST, where=squares == 0)  # never seen
            np.minimum(direction, square, out=direction)
            np.maximum(direction, np.negative(square, out=square), out=direction)
        np.multiply(direction, direction, out=square)
        square *= np.float32(1 - self._decay)
        squares *= np.float32(self._decay)
        squares += square
        np.multiply(squares, np.float32(1 / (1 - self._decay**self._steps)), out=square)
        np.sqrt(square, out=square)
        square += _EPSILON
        direction /= square
        for start, stop in zip(self._bounds[:-1], self._bounds[1:], strict=True):
            if stop > start:
                direction[start:stop] *= np.float32(max(LEAST_SCALE, _rms(theta[start:stop])))
        return direction


def _rms(tensor: Vector) -> float:
    return math.sqrt(float(np.dot(tensor, tensor)) / tensor.size)
