"""Gradients as small integers, and back: clipped to a public range and rounded at random.

Rounding is stochastic, so that the mean of many devices has no bias (D. Alistarh et al., "QSGD", NeurIPS
2017, section 3.1; for sums with masks K. Bonawitz et al., "Federated learning with autotuned
communication-efficient secure aggregation", Asilomar 2019). Each tensor has a range. It follows the mean of
the logarithms of the devices' root mean squares, which are summed in secret as well.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout
from edgeflock.shared.secure_sum.masks import Vector, VectorShape, centre
from edgeflock.shared.secure_sum.messages import MAX_DEVICES

_RANGE = 4.0
"""The range, in root mean squares of a tensor's entries."""

_LEVELS = 8
"""Levels of a root mean square in an octave."""
_MIDDLE, _LARGEST_STEP = 1000, 16
"""The level of 1, and by how much a device moves a level that is known."""

_LOSSES = 2400
"""Added to the level of a loss (protocol/wire.py), which is from -2400 to 2400."""

_TAIL = 2
"""Counts before the levels of the tensors: the samples, and the level of the loss."""

MAX_SAMPLES = ((1 << 32) - 1) // MAX_DEVICES
"""Of one device in a sum, so that the sum of all fits into a count."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one device adds to a sum."""

    values: NDArray[np.float32]
    """The gradient at the round's positions."""
    samples: int
    loss_level: int


@dataclass(frozen=True, slots=True)
class DecodedSum:
    """What a sum says."""

    values: NDArray[np.float32]
    """The devices' mean gradient at the round's positions; with differential privacy their sum."""
    samples: int
    """Of all devices; 0: not known."""
    loss_level: int | None
    """Of the geometric mean of their losses; None: not known."""
    ranges: NDArray[np.float32]
    """For the next round."""


class Quantiser:
    """Codes contributions to one round."""

    def __init__(self, layout: Layout, positions: NDArray[np.int64], bits: int, devices: int) -> None:
        """A value has `bits` bits, of which one is the sign. `devices` may contribute, at most."""
        self._limit = largest_of(bits)
        starts = np.array([tensor.start for tensor in layout.tensors])
        self._tensor = np.searchsorted(starts, positions, side="right") - 1
        """The tensor of each position."""
        self.shape = VectorShape(positions.size, entry_width(bits, devices), _TAIL + len(layout.tensors))

    def quantise(
        self, contribution: Contribution, ranges: NDArray[np.float32], random: np.random.Generator
    ) -> Vector:
        """Return the integers to sum: uint32 [entries + counts].

        `ranges` has one for each tensor; 0: unknown. Then all its entries are 0, and the sum says only what
        the range should be.
        """
        values, bound = contribution.values, ranges[self._tensor]
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.clip(np.where(bound > 0, values / bound, 0), -1, 1) * self._limit
        whole = np.floor(scaled + random.random(values.size)).astype(np.int64)
        whole = np.clip(whole, -self._limit, self._limit)
        counts = [min(contribution.samples, MAX_SAMPLES), contribution.loss_level + _LOSSES]
        return self.shape.reduce(
            np.concatenate((whole, counts, self._levels(values, ranges))).astype(np.uint32)
        )

    def decode(self, total: Vector, devices: int, ranges: NDArray[np.float32]) -> DecodedSum:
        """Return what the sum of `devices` vectors says, which were quantised with `ranges`."""
        entries, counts = np.split(total, [self.shape.entries])
        values = centre(entries, self.shape.width) * (ranges[self._tensor] / (self._limit * devices))
        levels = counts[_TAIL:] / devices
        found = _RANGE * np.exp2((levels - _MIDDLE) / _LEVELS)
        # A tensor that is zero everywhere keeps an unknown range, which is 0.
        following = np.where(levels > 0, np.minimum(found, np.finfo(np.float32).max), 0)
        loss = round(float(counts[1]) / devices) - _LOSSES
        return DecodedSum(values.astype(np.float32), int(counts[0]), loss, following.astype(np.float32))

    def _levels(self, values: NDArray[np.float32], ranges: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the level of each tensor's root mean square; 0: it is zero, and its range is unknown."""
        tensors = ranges.size
        squares = np.bincount(self._tensor, np.square(values, dtype=np.float64), tensors)
        counts = np.bincount(self._tensor, minlength=tensors)
        with np.errstate(divide="ignore", invalid="ignore"):
            present = np.log2(ranges.astype(np.float64) / _RANGE) * _LEVELS + _MIDDLE
            level = np.log2(squares / counts) / 2 * _LEVELS + _MIDDLE
        level = np.where(squares > 0, level, np.where(ranges > 0, present, 0))
        bounded = np.clip(level, present - _LARGEST_STEP, present + _LARGEST_STEP)
        level = np.where(ranges > 0, bounded, level)
        return np.clip(np.rint(level), 0, 2 * _MIDDLE).astype(np.int64)


def largest_of(bits: int) -> int:
    """Return the largest integer of an entry."""
    return (1 << (bits - 1)) - 1


def entry_width(bits: int, devices: int) -> int:
    """Return the bits in which sums of `devices` entries cannot overflow: 2 n limit + 1 values fit."""
    return (2 * devices * largest_of(bits)).bit_length()
