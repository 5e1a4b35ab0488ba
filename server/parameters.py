"""theta, its version and the rule that makes the next one: what a journal's replay reproduces."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.admission import Step
from edgeflock.server.optimizer import descend
from edgeflock.server.regime import Regime
from edgeflock.server.staleness import Staleness
from edgeflock.server.weighting import linear_scaling, rule, stream_share

_STRIDE = 16
"""The average takes in every sixteenth version: as good, and its cost a push is no longer worth a name."""


class Round:
    """The sums that a round comes to, so that a step need not be kept until it ends.

    In float32 and in the order of the journal, so that a replay gives the same bits.
    """

    def __init__(self, parameters: int, buffers: int) -> None:
        self.steps = self.samples = 0
        self.gradient = np.zeros(parameters, np.float32)
        """sum_i S_i g_i: [P]."""
        self.statistics = np.zeros(buffers, np.float32)
        """sum_i S_i s_i: [B]."""

    def add(self, step: Step) -> None:
        self.steps += 1
        self.samples += step.samples
        descend(self.gradient, step.where, step.delta, -np.float32(step.samples))
        if step.statistics.size:
            self.statistics += np.float32(step.samples) * step.statistics


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
        self._round: Round | None = None

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
        self._rule = rule(regime.rule)
        self._staleness: Staleness | None = None
        if self._rule.per_parameter and not regime.rounds:
            self._staleness = Staleness(self._trained.size, regime.window, start)
            for step in recent:
                self._staleness.touch(step.where, step.delta)

    @property
    def oldest(self) -> int:
        """The oldest version that an update may be based on."""
        if self.regime.rounds:
            return self.version
        return max(self._start, self.version - self.regime.window + 1)

    def apply(self, step: Step) -> None:
        """Weigh, descend: the next version."""
        weight = self._rule.weight(step, self.version) * stream_share(step, self.regime.base_batch)
        rate = np.float32(self.regime.learning_rate * weight)
        if self._staleness is None:
            descend(self._trained, step.where, step.delta, rate)
        else:
            self._staleness.descend(self._trained, step.where, step.delta, step.base, rate)
        if step.statistics.size:
            self._follow(step.statistics, self.version - step.base)
        self._made(1)

    def gather(self, step: Step) -> None:
        """One more step of the round that starts at this version; theta stays as it is until `end_round`."""
        if self._round is None:
            self._round = Round(self._trained.size, self._statistics.size)
        self._round.add(step)

    def end_round(self) -> None:
        """w <- w - eta_scaled sum_i r_i g_i over what was gathered (ScaDLES, equations 4a to 4c): as many
        versions as steps, of which only the last one exists."""
        assert self._round is not None, "gather first"
        ended, self._round = self._round, None
        scale = linear_scaling(ended.samples, self.regime.base_batch)
        self._trained -= np.float32(self.regime.learning_rate * scale / ended.samples) * ended.gradient
        if ended.statistics.size:
            self._follow(ended.statistics / np.float32(ended.samples), 0)
        self._made(ended.steps)

    def _made(self, versions: int) -> None:
        before, self.version = self.version, self.version + versions
        if self.average is not None:
            for count in range(before // _STRIDE + 1, self.version // _STRIDE + 1):
                self._take_in(self.average, count)

    def _follow(self, statistics: NDArray[np.float32], behind: int) -> None:
        """b <- b + (s - b) / max(10, tau), tau = version - base = `behind`, for the running statistics b.

        Whatever the rule and the learning rate. With one device that is BatchNorm at torch's momentum of
        0.1; in a fleet, where tau is about the number of devices, each has its share in the average.

        s is what the device's batches came to, not how far the device moved its own statistics: devices that
        set out from the same old ones would all say the same, and the sum of it would carry the server's
        past anything that was measured, a variance below zero.
        """
        lag = max(_LEAST_LAG, behind)
        self._statistics += (statistics - self._statistics) / np.float32(lag)

    def _take_in(self, average: NDArray[np.float32], count: int) -> None:
        """average <- (1 - w) average + w theta, w = (eta + 1) / (t + eta), for the t-th time.

        Polynomial-decay averaging (O. Shamir and T. Zhang, "Stochastic gradient descent for non-smooth
        optimization", ICML 2013): old versions are forgotten at a pace that slows down as the run goes on.
        """
        eta = self.regime.average
        average += np.float32((eta + 1) / (count + eta)) * (self.theta - average)
