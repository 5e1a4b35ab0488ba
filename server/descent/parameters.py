"""theta, its version and the rule that makes the next one: what a journal's replay reproduces."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.gathering import Gathered
from edgeflock.server.descent.memory import OptimizerMemory
from edgeflock.server.descent.part import Part, Vectors, VectorState, optimizes
from edgeflock.server.descent.rates import SCHEDULES, factor_at
from edgeflock.server.descent.recoverable import RecoverableVectors
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.statistics import LIMITED, Running
from edgeflock.server.descent.step import Step, Where
from edgeflock.server.descent.step_bound import StepBound
from edgeflock.server.descent.ways import Optimized, Plain, Way
from edgeflock.server.descent.weighting import linear_scaling, rule, stream_share

Place = Callable[[VectorState, Iterable[Step]], Vectors]
"""Where the vectors are kept: a `Part` of this process, or shards."""

_STRIDE = 16
"""The average takes in every sixteenth version: as good, and its cost a push is no longer worth a name."""

_LEAST_LAG = 10
"""Running statistics go at most a tenth of the way to an update's."""


class Parameters:
    """theta: trained parameters, then running statistics ("buffers")."""

    def __init__(
        self,
        version: int,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None = None,
        memory: bytes | None = None,
        *,
        buffers: int = 0,
        norms: Sequence[tuple[slice, slice]] = (),
        regime: Regime,
        start: int,
        recent: Iterable[Step] = (),
        began: float | None = None,
        place: Place = Part,
    ) -> None:
        """theta at `version`, counting by `regime` from here on. Both vectors are changed in place, if
        `place` keeps them in this process. `memory` is what steps depend on beside them, from
        `packed_memory`.

        The last `buffers` entries of theta are running statistics: what steps bring of these is theirs.
        `norms` says which are whose, as Layout.norms.
        `recent` are the steps that made the versions after `start`: updates based on versions before it are
        not admitted. `began` is when the first step of all came.

        Raises ConfigError if there is no such optimizer, ValueError for a memory that cannot be one.
        """
        self.version = version
        self.regime = regime
        self.began = began
        """When the first step of all came; None: none has."""
        self.start = start
        """Updates based on versions before it are not admitted: nothing before it counts any more."""
        self.kept = RecoverableVectors(theta.size)
        """All that is kept of each parameter."""
        self._rule = rule(regime.rule)
        SCHEDULES.known(regime.how.schedule, "optimizer.schedule")
        self._buffers, self._norms = buffers, norms
        self._place = place
        self._begin(theta, average, memory, recent)

    def _begin(
        self,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None,
        memory: bytes | None,
        recent: Iterable[Step] = (),
    ) -> None:
        """Go on from this."""
        known = OptimizerMemory.unpacked(memory, theta.size - self._buffers)
        state = VectorState(theta, average, known, self._buffers, self.regime, self.start)
        limited = self.regime.how.statistics == LIMITED
        self._running = Running(theta[theta.size - self._buffers :], self._norms) if limited else None
        """The running statistics, where steps say more of them than counts."""
        self._reach = StepBound()
        self._way: Way = (
            Optimized(state, self.kept, self._reach) if optimizes(state) else Plain(self.kept, self._reach)
        )
        self.kept.begin(lambda: self._place(state, recent))

    @property
    def theta(self) -> NDArray[np.float32]:
        """[P + B]."""
        return self.kept.surely(lambda: self.kept.vectors.theta)

    @property
    def average(self) -> NDArray[np.float32] | None:
        """The versions' polynomial-decay average, if the regime keeps one: the model to use. Devices train
        on theta."""
        return self.kept.surely(lambda: self.kept.vectors.average) if self.regime.average else None

    def shown(self, version: int) -> int:
        """The last version of theta that the model to use at `version` tells of."""
        return version - version % _STRIDE if self.regime.average else version

    def packed_memory(self) -> bytes | None:
        """What steps to come depend on beside theta and its average; None: nothing."""
        return self._way.packed_memory()

    def go_back(
        self, theta: NDArray[np.float32], average: NDArray[np.float32] | None, memory: bytes | None = None
    ) -> None:
        """The next version is this model. Only updates that start from there on are admitted."""
        self.version += 1
        self.start = self.version
        self._begin(theta, average, memory)

    @property
    def oldest(self) -> int:
        """The oldest version that an update may be based on."""
        if self.regime.rounds:
            return self.version
        return max(self.start, self.version - self.regime.window + 1)

    def fits(self, step: Step, most: float, gathered: Gathered | None = None) -> bool:
        """Whether all trained parameters are numbers of at most `most` in magnitude after `step`, or, where
        they were beyond it before, go no further. In rounds: if the round ended with what was `gathered` and
        `step`. What `step` leaves alone goes no further with more samples.

        Running statistics travel at half precision, and theirs go no further than what is sent.
        """
        if not self.regime.rounds:
            return self._way.fits(step, self._weight(step), self.learning_rate(step.time), most)
        with np.errstate(over="ignore", invalid="ignore"):
            total, samples = np.float32(step.samples) * step.delta, step.samples
            if gathered is not None:
                total += gathered.gradient[step.where]
                samples += gathered.samples
        return not step.samples or self._sum_fits(replace(step, delta=total), samples, most)

    def fits_round(self, gathered: Gathered, most: float) -> bool:
        """The same of a whole round, whose rate may be another one by now."""
        return not gathered.samples or self._sum_fits(self._sum(gathered), gathered.samples, most)

    def _sum_fits(self, step: Step, samples: int, most: float) -> bool:
        return self._way.fits(step, self._scale(samples), self.learning_rate(step.time), most, samples)

    def _sum(self, gathered: Gathered) -> Step:
        """A round as a step, of which every parameter has an entry."""
        return Step(self.version, slice(None), gathered.total, time=gathered.time)

    def limited(self, step: Step) -> Step:
        """`step` with running statistics that go no further than may count at this version, by the regime.
        Each step is limited before it is applied or gathered.
        """
        if self._running is None or not step.statistics.size:
            return step
        statistics, beyond = self._running.limited(step.statistics)
        return replace(step, statistics=statistics, beyond=beyond)

    def share(self, nodes: int) -> None:
        """From now on an update is of one of so many nodes at work."""
        self.regime = replace(self.regime, how=replace(self.regime.how, nodes=nodes))
        self.kept.surely(lambda: self.kept.vectors.share(nodes))

    def apply(self, change: Step | Gathered) -> None:
        """The next version; of what a round has gathered, as many versions as steps."""
        if self.began is None:
            self.began = change.began if isinstance(change, Gathered) else change.time
        if isinstance(change, Gathered):
            self._end_round(change)
        else:
            self._descend(change)
        if self._way.is_over:
            self._way = Plain(self.kept, self._reach)

    def _descend(self, step: Step) -> None:
        """Weigh, descend."""
        self._way.take(step, self._weight(step), self.learning_rate(step.time))
        if step.statistics.size:
            self._follow(step.statistics, self.version - step.base)
        self._made(1)

    def told_weight(self, step: Step) -> float:
        """How much a step counts by the samples that its device tells of. Nothing else that is said of an
        update makes it count more.
        """
        return step.samples if self.regime.rounds else stream_share(step, self.regime.base_batch)

    def changes(self, where: Where) -> Where:
        """Which parameters the next version changes, whose update touches these."""
        return self._way.changes(where)

    def learning_rate(self, time: float) -> float:
        """Of the next version, made at a time: the regime's, by its schedule."""
        how = self.regime.how
        seconds = 0.0 if self.began is None else max(0.0, time - self.began)
        return self.regime.learning_rate * factor_at(how, self.version if how.by == "updates" else seconds)

    def _weight(self, step: Step) -> float:
        """How much a step counts, but for the staleness of each parameter. Of n nodes' own steps each counts
        1 / n, and n of them are one version to the rule.
        """
        counted, nodes = self._way.counted(step.base, self.version), self.regime.how.nodes
        turns = -((step.base - counted) // nodes)
        return self._rule.weight(step, step.base + turns) * stream_share(step, self.regime.base_batch) / nodes

    def _scale(self, samples: int) -> float:
        """How the learning rate of a round grows with its samples."""
        return linear_scaling(samples, self.regime.base_batch)

    def _end_round(self, gathered: Gathered) -> None:
        """w <- w - eta_scaled sum_i r_i g_i over what was gathered (ScaDLES, equations 4a to 4c).

        Of the versions that its steps make only the last one exists.
        """
        if gathered.samples:  # else a defence let nothing of it count
            rate = self.learning_rate(gathered.time)
            self._way.take(self._sum(gathered), self._scale(gathered.samples), rate, gathered.samples)
        if gathered.measured:
            self._follow(gathered.statistics / np.float32(gathered.measured), 0)
        self._made(gathered.steps)

    def _made(self, versions: int) -> None:
        before, self.version = self.version, self.version + versions
        if self.regime.average:
            for count in range(before // _STRIDE + 1, self.version // _STRIDE + 1):
                self._take_in(count)

    def _follow(self, statistics: NDArray[np.float32], behind: int) -> None:
        """b <- b + (s - b) / max(10, tau), tau = version - base = `behind`, for the running statistics b.

        Whatever the rule and the learning rate. With one device that is BatchNorm at torch's momentum of
        0.1; in a fleet, where tau is about the number of devices, each has its share in the average.

        s is what the device's batches came to, not how far the device moved its own statistics: devices that
        set out from the same old ones would all say the same, and the sum of it would carry the server's
        past anything that was measured, a variance below zero.
        """
        lag = max(_LEAST_LAG, behind)
        self.kept.vectors.follow(statistics, lag)
        if self._running is not None:
            self._running.follow(statistics, lag)

    def _take_in(self, count: int) -> None:
        """average <- (1 - w) average + w theta, w = (eta + 1) / (t + eta), for the t-th time.

        Polynomial-decay averaging (O. Shamir and T. Zhang, "Stochastic gradient descent for non-smooth
        optimization", ICML 2013): old versions are forgotten at a pace that slows down as the run goes on.
        """
        eta = self.regime.average
        self.kept.vectors.take_in(np.float32((eta + 1) / (count + eta)))
