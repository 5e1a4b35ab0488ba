"""theta, its version and the rule that makes the next one: what a journal's replay reproduces."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.admission import Step
from edgeflock.server.coordination import Async, Coordinator
from edgeflock.server.optimizer import descend
from edgeflock.server.staleness import Staleness, Where
from edgeflock.server.weighting import RULES, stream_share


@dataclass(frozen=True, slots=True)
class Regime:
    """How updates count from a version on."""

    rule: str
    learning_rate: float
    window: int
    """Updates may be based on any of the latest `window` versions."""
    average: float = 0.0
    """eta of the averaged model; 0 keeps none."""
    base_batch: int = 0
    """B: a step of b samples counts b / B times; 0: all steps alike."""


_STRIDE = 16
"""The average takes in every sixteenth version: as good, and its cost a push is no longer worth a name."""


_LEAST_LAG = 10
"""Running statistics go at most a tenth of the way to an update's."""


class Parameters:
    """theta, or any contiguous slice of it: trained parameters, then running statistics ("buffers")."""

    def __init__(
        self,
        version: int,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None = None,
        buffers: int = 0,
    ) -> None:
        """The last `buffers` entries of theta are running statistics: what steps bring of these is theirs."""
        self.version = version
        self.theta = theta
        self.average = average
        """The versions' polynomial-decay average, if the regime keeps one: the model to use. Devices train
        on theta."""
        self._trained, self._statistics = np.split(theta, [theta.size - buffers])
        self._coordinator: Coordinator = Async()

    def adopt(self, regime: Regime, start: int, recent: Iterable[Step]) -> None:
        """Count by `regime` from here on. `recent` are the steps that made the versions after `start`.

        Updates based on versions before `start` are no longer admitted.
        """
        self._start = start
        self.regime = regime
        if not regime.average:
            self.average = None
        elif self.average is None:
            self.average = self.theta.copy()
        self._rule = RULES[regime.rule]
        self._staleness: Staleness | None = None
        if self._rule.per_parameter:
            self._staleness = Staleness(self._trained.size, regime.window, start)
            for step in recent:
                self._staleness.touch(step.where, step.delta)

    @property
    def oldest(self) -> int:
        """The oldest version that an update may be based on."""
        return max(self._start, self.version - self.regime.window + 1)

    def apply(self, step: Step) -> list[Where]:
        """Coordinate, weigh, descend. Returns which parameters each version that it made has touched."""
        made = []
        for ready in self._coordinator.offer(step):
            weight = self._rule.weight(ready, self.version) * stream_share(ready, self.regime.base_batch)
            rate = np.float32(self.regime.learning_rate * weight)
            if self._staleness is None:
                descend(self._trained, ready.where, ready.delta, rate)
            else:
                self._staleness.descend(self._trained, ready.where, ready.delta, ready.base, rate)
            if ready.statistics.size:
                self._follow(ready)
            self.version += 1
            if self.average is not None and self.version % _STRIDE == 0:
                self._take_in(self.average, self.version // _STRIDE)
            made.append(ready.where)
        return made

    def _follow(self, step: Step) -> None:
        """b <- b + (s - b) / max(10, tau), tau = version - base, for the running statistics b.

        Whatever the rule and the learning rate. With one device that is BatchNorm at torch's momentum of
        0.1; in a fleet, where tau is about the number of devices, each has its share in the average.

        s is what the device's batches came to, not how far the device moved its own statistics: devices that
        set out from the same old ones would all say the same, and the sum of it would carry the server's
        past anything that was measured, a variance below zero.
        """
        lag = max(_LEAST_LAG, self.version - step.base)
        self._statistics += (step.statistics - self._statistics) / np.float32(lag)

    def _take_in(self, average: NDArray[np.float32], count: int) -> None:
        """average <- (1 - w) average + w theta, w = (eta + 1) / (t + eta), for the t-th time.

        Polynomial-decay averaging (O. Shamir and T. Zhang, "Stochastic gradient descent for non-smooth
        optimization", ICML 2013): old versions are forgotten at a pace that slows down as the run goes on.
        """
        eta = self.regime.average
        average += np.float32((eta + 1) / (count + eta)) * (self.theta - average)
