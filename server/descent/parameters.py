"""theta, its version and the rule that makes the next one: what a journal's replay reproduces."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.gathering import Gathered
from edgeflock.server.descent.memory import Memory
from edgeflock.server.descent.optimizer import Optimizer, clipped, descend
from edgeflock.server.descent.rates import SCHEDULES, factor_at
from edgeflock.server.descent.reach import Reach, largest, within
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.staleness import Staleness
from edgeflock.server.descent.step import Step, Where
from edgeflock.server.descent.weighting import linear_scaling, rule, stream_share

_STRIDE = 16
"""The average takes in every sixteenth version: as good, and its cost a push is no longer worth a name."""


_SQUARABLE = 1e15
"""No entry of a gradient may be larger where an optimizer remembers it: squares of larger ones add up to no
number."""

_LEAST_LAG = 10
"""Running statistics go at most a tenth of the way to an update's."""


class Parameters:
    """theta, or any contiguous slice of it: trained parameters, then running statistics ("buffers")."""

    def __init__(
        self,
        version: int,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None = None,
        memory: bytes | None = None,
        *,
        buffers: int = 0,
        regime: Regime,
        start: int,
        recent: Iterable[Step] = (),
        began: float | None = None,
    ) -> None:
        """theta at `version`, counting by `regime` from here on. Both vectors are changed in place. `memory`
        is what steps depend on beside them, from `packed_memory`.

        The last `buffers` entries of theta are running statistics: what steps bring of these is theirs.
        `recent` are the steps that made the versions after `start`: updates based on versions before it are
        not admitted. `began` is when the first step of all came.

        Raises ConfigError if there is no such optimizer, ValueError for a memory that cannot be one.
        """
        self.version = version
        self.theta = theta
        self.average = (theta.copy() if average is None else average) if regime.average else None
        """The versions' polynomial-decay average, if the regime keeps one: the model to use. Devices train
        on theta."""
        self.regime = regime
        self.began = began
        """When the first step of all came; None: none has."""
        self.start = start
        """Updates based on versions before it are not admitted: nothing before it counts any more."""
        self._trained, self._statistics = np.split(theta, [theta.size - buffers])
        self._rule = rule(regime.rule)
        SCHEDULES.known(regime.how.schedule, "optimizer.schedule")
        self._optimizer: Optimizer | None = None
        """None: theta - rate g, in one pass."""
        self._gathered: NDArray[np.float32] | None = None
        """The sum of the updates that wait for others to make a step with: [P]."""
        self._waiting = 0
        """How many these are."""
        self._everywhere: NDArray[np.int64] | None = None
        """All indices, once they were asked for."""
        self._remember(memory)
        self._reach = Reach()
        self._staleness: Staleness | None = None
        if self._rule.per_parameter and not regime.rounds:
            self._staleness = Staleness(self._trained.size, regime.window, start)
            for step in recent:
                self._staleness.touch(step.where, step.delta)

    def shown(self, version: int) -> int:
        """The last version of theta that the model to use at `version` tells of."""
        return version if self.average is None else version - version % _STRIDE

    def packed_memory(self) -> bytes | None:
        """What steps to come depend on beside theta and its average; None: nothing."""
        optimizer = self._optimizer
        if optimizer is None:
            return None
        numbers = optimizer.memory if optimizer.kind.columns else None
        return Memory(optimizer.kind.remembers, numbers, self._gathered, self._waiting).packed()

    def _remember(self, memory: bytes | None) -> None:
        """Go on from this. An optimizer that remembers something else begins anew; what waits for a step is
        in the next one, however many updates make one from now on.
        """
        how, size = self.regime.how, self._trained.size
        known = Memory.unpacked(memory, size)
        self._optimizer, self._gathered, self._waiting = None, None, known.waiting
        if how.together > 1 or known.waiting:
            self._gathered = np.zeros(size, np.float32) if known.gathered is None else known.gathered
        if not how.is_plain or self._gathered is not None:
            self._optimizer = Optimizer(how, size)
            if known.of == self._optimizer.kind.remembers:
                self._optimizer = Optimizer(how, size, known.numbers)

    def go_back(
        self, theta: NDArray[np.float32], average: NDArray[np.float32] | None, memory: bytes | None = None
    ) -> None:
        """The next version is this model. Only updates that start from there on are admitted."""
        self._remember(memory)
        self.version += 1
        self.start = self.version
        self.theta[:] = theta
        self._reach = Reach()
        if self.average is not None:
            self.average[:] = theta if average is None else average
        if self._staleness is not None:
            self._staleness = Staleness(self._trained.size, self.regime.window, self.version)

    @property
    def oldest(self) -> int:
        """The oldest version that an update may be based on."""
        if self.regime.rounds:
            return self.version
        return max(self.start, self.version - self.regime.window + 1)

    def bears(self, step: Step, most: float, gathered: Gathered | None = None) -> bool:
        """Whether all trained parameters are numbers of at most `most` in magnitude after `step`, or, where
        they were beyond it before, go no further. In rounds: after that with what was `gathered` and `step`.

        Running statistics travel at half precision, and theirs go no further than what is sent.
        """
        if self.regime.rounds:
            with np.errstate(over="ignore", invalid="ignore"):
                return self._bears_in_round(step, most, gathered)
        if self._optimizer is not None:
            return self._bears_optimized(self._optimizer, step, most)
        rate = self._rate(step)
        move = abs(float(rate)) * largest(step.delta)
        if self._reach.suffices(self._trained, move, most):
            return True
        shares: NDArray[np.float32] | np.float32 = rate
        if self._staleness is not None:
            shares = rate / np.maximum(self._staleness.sigma(step.where, step.base), 1).astype(np.float32)
        before = self._trained[step.where]
        with np.errstate(over="ignore", invalid="ignore"):
            fine = within(before, before - shares * step.delta, most)
        if fine:
            self._reach.take(move, most)
        return fine

    def _bears_optimized(self, optimizer: Optimizer, step: Step, most: float) -> bool:
        """The same where an optimizer steps, whose squares must stay numbers as well."""
        weight = self._weight(step)
        most_of_it = abs(float(weight)) * largest(step.delta)
        if not most_of_it <= _SQUARABLE:
            return False
        rate = self._learning_rate(step.time)
        move = optimizer.reach(most_of_it, float(rate), most)
        if self._gathered is None and self._reach.suffices(self._trained, move, most):
            return True
        gradient: NDArray[np.float32] = weight * step.delta
        if self._staleness is not None:
            sigma = self._staleness.sigma(step.where, step.base).astype(np.float32)
            share = np.float32(self.regime.how.together)
            gradient = weight / np.maximum(sigma / share, np.float32(1)) * step.delta
        if self._gathered is None:
            gradient = clipped(gradient, self.regime.how.clip)
        else:
            together = max(self.regime.how.together, self._waiting + 1)
            total: NDArray[np.float32] = self._gathered[step.where] + gradient
            gradient = total / np.float32(together)
        with np.errstate(over="ignore", invalid="ignore"):
            after = optimizer.tried(self._trained, self._indices(step.where), gradient, rate)
            fine = within(self._trained[step.where], after, most)
        if fine:
            self._reach.take(move, most)
        return fine

    def _bears_in_round(self, step: Step, most: float, gathered: Gathered | None) -> bool:
        """Whether the round could end with `step`. What it leaves alone goes no further with more samples."""
        if not step.samples:
            return True
        before, total = self._trained[step.where], np.float32(step.samples) * step.delta
        samples = step.samples
        if gathered is not None:
            total += gathered.gradient[step.where]
            samples += gathered.samples
        if self._optimizer is not None:
            total *= self._round_share(samples)
            if not largest(total) <= _SQUARABLE:
                return False
            where = self._indices(step.where)
            return within(
                before,
                self._optimizer.tried(self._trained, where, total, self._learning_rate(step.time)),
                most,
            )
        total *= self._round_rate(samples, step.time)
        return within(before, np.subtract(before, total, out=total), most)

    def bears_end(self, gathered: Gathered, most: float) -> bool:
        """The same of a whole round, whose rate may be another one by now."""
        if not gathered.samples:
            return True
        with np.errstate(over="ignore", invalid="ignore"):
            if self._optimizer is None:
                after = self._trained - self._round_rate(gathered.samples, gathered.time) * gathered.total
            else:
                gradient, where = self._round_gradient(gathered), self._indices(slice(None))
                after = self._optimizer.tried(
                    self._trained, where, gradient, self._learning_rate(gathered.time)
                )
            return within(self._trained, after, most)

    def apply(self, change: Step | Gathered) -> None:
        """The next version; of what a round has gathered, as many versions as steps."""
        if self.began is None:
            self.began = change.began if isinstance(change, Gathered) else change.time
        if isinstance(change, Gathered):
            self._end_round(change)
        else:
            self._descend(change)

    def _descend(self, step: Step) -> None:
        """Weigh, descend."""
        if self._optimizer is not None:
            self._optimize(self._optimizer, step)
        elif self._staleness is None:
            descend(self._trained, step.where, step.delta, self._rate(step))
        else:
            rate = self._rate(step)
            self._staleness.descend(self._trained, step.where, step.delta, step.base, rate)
        if step.statistics.size:
            self._follow(step.statistics, self.version - step.base)
        self._made(1)

    def _optimize(self, optimizer: Optimizer, step: Step) -> None:
        """Weigh; wait for others, if several updates make a step; clip; step."""
        how, gradient, where = self.regime.how, self._weighed(step), step.where
        rate = self._learning_rate(step.time)
        if self._gathered is not None:
            descend(self._gathered, where, gradient, np.float32(-1))
            self._waiting += 1
            if self._waiting < how.together:
                return
            gradient, where = self._gathered / np.float32(self._waiting), slice(None)
            self._gathered[:] = self._waiting = 0
        optimizer.step(self._trained, self._indices(where), clipped(gradient, how.clip), rate)
        if how.is_plain:  # what waited is of a regime before
            self._optimizer = self._gathered = None

    def told_weight(self, step: Step) -> float:
        """How much a step counts by the samples that its device tells of. Nothing else that is said of an
        update makes it count more.
        """
        return step.samples if self.regime.rounds else stream_share(step, self.regime.base_batch)

    def changes(self, where: Where) -> Where:
        """Which parameters the next version changes, whose update touches these."""
        if self._gathered is None:
            return where
        if self._waiting + 1 < self.regime.how.together:
            return np.zeros(0, np.int64)
        if isinstance(where, slice):
            return where
        return np.union1d(np.flatnonzero(self._gathered), where)

    def _weighed(self, step: Step) -> NDArray[np.float32]:
        """Its gradient, by its staleness and samples, which an optimizer steps with. It counts as applied."""
        weight = self._weight(step)
        if self._staleness is None:
            return weight * step.delta
        return self._staleness.weigh(step.where, step.delta, step.base, weight, self.regime.how.together)

    def _indices(self, where: Where) -> NDArray[np.int64]:
        if not isinstance(where, slice):
            return where
        if self._everywhere is None:
            self._everywhere = np.arange(self._trained.size)
        return self._everywhere

    def _learning_rate(self, time: float) -> np.float32:
        """That of a step with a gradient that is weighed, at a time."""
        return np.float32(self.learning_rate(time))

    def learning_rate(self, time: float) -> float:
        """Of the next version, made at a time: the regime's, by its schedule."""
        how = self.regime.how
        seconds = 0.0 if self.began is None else max(0.0, time - self.began)
        return self.regime.learning_rate * factor_at(how, self.version if how.by == "updates" else seconds)

    def _weight(self, step: Step) -> np.float32:
        """How much a step counts, but for the staleness of each parameter."""
        since = step.base + self._steps_since(step.base)
        return np.float32(self._rule.weight(step, since) * stream_share(step, self.regime.base_batch))

    def _steps_since(self, base: int) -> int:
        """tau: how often theta has changed since version `base`. Where several updates make a step, a version
        that still waits for the others changed nothing.
        """
        together = self.regime.how.together
        return max(0, -(-(self.version - self._waiting - base) // together))

    def _rate(self, step: Step) -> np.float32:
        """The learning rate of a step, but for the staleness of each parameter."""
        weight = self._rule.weight(step, self.version) * stream_share(step, self.regime.base_batch)
        return np.float32(self.learning_rate(step.time) * weight)

    def _round_rate(self, samples: int, time: float) -> np.float32:
        """That of a round of so many samples, by which its gradient is not divided yet."""
        scale = linear_scaling(samples, self.regime.base_batch)
        return np.float32(self.learning_rate(time) * scale / samples)

    def _round_share(self, samples: int) -> np.float32:
        """What a round's sum is multiplied with to be its gradient."""
        return np.float32(linear_scaling(samples, self.regime.base_batch) / samples)

    def _round_gradient(self, gathered: Gathered) -> NDArray[np.float32]:
        return clipped(self._round_share(gathered.samples) * gathered.total, self.regime.how.clip)

    def _end_round(self, gathered: Gathered) -> None:
        """w <- w - eta_scaled sum_i r_i g_i over what was gathered (ScaDLES, equations 4a to 4c).

        Of the versions that its steps make only the last one exists.
        """
        if not gathered.samples:  # a defence let nothing of it count
            pass
        elif self._optimizer is None:
            self._trained -= self._round_rate(gathered.samples, gathered.time) * gathered.total
        else:
            gradient, where = self._round_gradient(gathered), self._indices(slice(None))
            self._optimizer.step(self._trained, where, gradient, self._learning_rate(gathered.time))
        if gathered.measured:
            self._follow(gathered.statistics / np.float32(gathered.measured), 0)
        self._made(gathered.steps)

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
