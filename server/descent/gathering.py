"""What the steps of a round come to, without any of them being kept (ScaDLES, equations 4a to 4c)."""

import numpy as np

from edgeflock.server.descent.optimizer import descend
from edgeflock.server.descent.step import Step
from edgeflock.shared.model.layout import Layout


class Gathered:
    """Sums over steps that start at the same version.

    In float32 and in the order of the journal, so that a replay gives the same bits.
    """

    def __init__(self, layout: Layout) -> None:
        self.steps = self.samples = 0
        self.began = self.time = 0.0
        """When the first step and the last one came."""
        self.gradient = np.zeros(layout.parameters.size, np.float32)
        """sum_i S_i g_i: [P]."""
        self.statistics = np.zeros(layout.buffers, np.float32)
        """sum_i S_i s_i: [B]."""

    def add(self, step: Step) -> None:
        if not self.steps:
            self.began = step.time
        self.steps += 1
        self.samples += step.samples
        self.time = step.time
        descend(self.gradient, step.where, step.delta, -np.float32(step.samples))
        if step.statistics.size:
            self.statistics += np.float32(step.samples) * step.statistics
