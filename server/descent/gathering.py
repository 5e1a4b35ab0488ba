"""Gathers the steps of a round.

The result is their mean, without keeping them (ScaDLES, equations 4a to 4c), or one of aggregates.py.
"""

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.aggregates import AGGREGATES, MEAN
from edgeflock.server.descent.optimizer import descend
from edgeflock.server.descent.step import Index, Step
from edgeflock.shared.model.layout import Layout


class Gathered:
    """Sums over steps that start at the same version.

    The sums are in float32 and in the order of the journal, so that a replay gives the same bits.
    """

    def __init__(self, layout: Layout, aggregate: str = MEAN) -> None:
        """Raises ConfigError if the aggregate is unknown."""
        self.steps = self.samples = self.measured_samples = 0
        """The number of steps, of their samples, and of the samples of steps with running statistics."""
        self.start_time = self.time = 0.0
        """The times of the first and the last step."""
        self.gradient = np.zeros(layout.parameters.size, np.float32)
        """sum_i S_i g_i: [P]."""
        self.indices: Index = slice(None)
        """The entries of the last step."""
        self.statistics = np.zeros(layout.buffers, np.float32)
        """sum_i S_i s_i: [B]."""
        self._aggregate = AGGREGATES.lookup(aggregate, "coordination.aggregate")
        self._steps: list[Step] = []
        """The steps, if the aggregate needs them."""

    def add(self, step: Step) -> None:
        if not self.steps:
            self.start_time = step.time
        self.steps += 1
        self.time, self.indices = step.time, step.indices
        if not step.samples:  # a defence has rejected all of it
            return
        self.samples += step.samples
        descend(self.gradient, step.indices, step.delta, -np.float32(step.samples))
        if step.statistics.size:
            self.measured_samples += step.samples
            self.statistics += np.float32(step.samples) * step.statistics
        if self._aggregate is not None:
            self._steps.append(step)

    @property
    def total(self) -> NDArray[np.float32]:
        """sum_i S_i g_i, or sum_i S_i times the aggregate, at the end of the round: [P]."""
        if self._aggregate is None or not self._steps:
            return self.gradient
        return np.float32(self.samples) * self._aggregate(self._steps, self.gradient.size)
