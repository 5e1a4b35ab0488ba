"""theta, its version and the rule that makes the next one: what a journal's replay reproduces."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.gathering import Gathered
from edgeflock.server.descent.memory import Memory
from edgeflock.server.descent.optimizer import Foresight, clipped, shortening
from edgeflock.server.descent.part import Entries, Part, State, Vectors, gathers, optimizes
from edgeflock.server.descent.rates import SCHEDULES, factor_at
from edgeflock.server.descent.reach import Reach, largest
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.step import Step, Where
from edgeflock.server.descent.weighting import linear_scaling, rule, stream_share
from edgeflock.shared.errors import EdgeflockError

T = TypeVar("T")

Place = Callable[[State, Iterable[Step]], Vectors]
"""Where the vectors are kept: a `Part` of this process, or shards."""

_STRIDE = 16
"""The average takes in every sixteenth version: as good, and its cost a push is no longer worth a name."""


_SQUARABLE = 1e15
"""No entry of a gradient may be larger where an optimizer remembers it: squares of larger ones add up to no
number."""

_TRIES = 5
"""So often something is asked of vectors that get lost each time."""

_LEAST_LAG = 10
"""Running statistics go at most a tenth of the way to an update's."""


class Lost(EdgeflockError):
    """A part of the vectors is lost, wherever it was."""


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
        self.restore: Callable[[int, Lost], Vectors] | None = None
        """Makes the vectors of a version again, if parts of them may get lost."""
        self.restored = 0
        """How often that was needed."""
        self._rule = rule(regime.rule)
        SCHEDULES.known(regime.how.schedule, "optimizer.schedule")
        self.size = theta.size
        """P + B."""
        self._buffers = buffers
        self._place = place
        self._begin(theta, average, memory, recent)
        self._reach = Reach()

    def _begin(
        self,
        theta: NDArray[np.float32],
        average: NDArray[np.float32] | None,
        memory: bytes | None,
        recent: Iterable[Step] = (),
    ) -> None:
        """Go on from this. An optimizer that remembers something else begins anew; what waits for a step is
        in the next one, however many updates make one from now on.
        """
        known = Memory.unpacked(memory, self.size - self._buffers)
        state = State(theta, average, known, self._buffers, self.regime, self.start)
        self._waiting = known.waiting
        """How many updates wait for others to make a step with."""
        self._gathers = gathers(state)
        self._gathered_most = 0.0 if known.gathered is None else largest(known.gathered)
        """No entry of what waits is above it."""
        self._foresight: Foresight | None = None
        """None: theta - rate g, in one pass."""
        if optimizes(state):
            self._foresight = Foresight(self.regime.how)
            if known.of == self._foresight.kind.remembers:
                self._foresight = Foresight(self.regime.how, known.numbers)
        self.vectors = self._surely(lambda: self._place(state, recent))
        """All that is kept of each parameter."""

    @property
    def theta(self) -> NDArray[np.float32]:
        """[P + B]."""
        return self._surely(lambda: self.vectors.theta)

    @property
    def average(self) -> NDArray[np.float32] | None:
        """The versions' polynomial-decay average, if the regime keeps one: the model to use. Devices train
        on theta."""
        return self._surely(lambda: self.vectors.average) if self.regime.average else None

    @property
    def entries(self) -> Entries:
        """theta where one looks."""
        return _Surely(self)

    def read(self, where: Where) -> NDArray[np.float32]:
        return self._surely(lambda: self.vectors.entries[where])

    @property
    def is_here(self) -> bool:
        """Whether the vectors are in this process."""
        return isinstance(self.vectors, Part)

    def flush(self) -> None:
        """See to it that all that was applied is under way to wherever the vectors are."""
        self._surely(lambda: self.vectors.flush())

    def _surely(self, look: Callable[[], T]) -> T:
        """What it comes to. Where a part of the vectors is lost, they are made again, and it is tried anew:
        until then it has changed nothing here. Raises Lost if that helps nothing.
        """
        lost = Lost()
        for again in range(_TRIES):
            try:
                if again and self.restore is not None:
                    self.vectors = self.restore(self.version, lost)
                    self.restored += 1
                return look()
            except Lost as error:
                if self.restore is None:
                    raise
                lost = error
        raise lost

    def shown(self, version: int) -> int:
        """The last version of theta that the model to use at `version` tells of."""
        return version - version % _STRIDE if self.regime.average else version

    def packed_memory(self) -> bytes | None:
        """What steps to come depend on beside theta and its average; None: nothing."""
        if self._foresight is None:
            return None
        return replace(self._surely(lambda: self.vectors.memory), waiting=self._waiting).packed()

    def go_back(
        self, theta: NDArray[np.float32], average: NDArray[np.float32] | None, memory: bytes | None = None
    ) -> None:
        """The next version is this model. Only updates that start from there on are admitted."""
        self.version += 1
        self.start = self.version
        self._begin(theta, average, memory)
        self._reach = Reach()

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
        if self._foresight is not None:
            return self._bears_optimized(self._foresight, step, most)
        rate = self._rate(step)
        move = abs(float(rate)) * largest(step.delta)
        if self._suffices(move, most):
            return True
        fine = self._surely(lambda: self.vectors.bears(step.where, step.delta, step.base, rate, most))
        if fine:
            self._reach.take(move, most)
        return fine

    def _suffices(self, move: float, most: float) -> bool:
        return self._reach.suffices(lambda: self._surely(lambda: self.vectors.largest()), move, most)

    def _bears_optimized(self, foresight: Foresight, step: Step, most: float) -> bool:
        """The same where an optimizer steps, whose squares must stay numbers as well."""
        how, weight, rate = self.regime.how, self._weight(step), self._learning_rate(step.time)
        most_of_it = abs(float(weight)) * largest(step.delta)
        if not most_of_it <= _SQUARABLE:
            return False
        waiting = self._waiting + 1
        if self._gathers:
            most_of_it = (self._gathered_most + most_of_it) / max(how.together, waiting)
        move = foresight.reach(most_of_it, float(rate), most)
        if self._suffices(move, most):
            return True
        entries = step.where, step.delta, step.base, weight

        def tried() -> bool:
            shortened = None
            if how.clip and not self._gathers:
                shortened = shortening(math.sqrt(self.vectors.squares_of(*entries, 0.0)), how.clip)
            return self.vectors.bears_step(*entries, rate, most, shortened, waiting)

        fine = self._surely(tried)
        if fine:
            self._reach.take(move, most)
        return fine

    def _bears_in_round(self, step: Step, most: float, gathered: Gathered | None) -> bool:
        """Whether the round could end with `step`. What it leaves alone goes no further with more samples."""
        if not step.samples:
            return True
        total, samples = np.float32(step.samples) * step.delta, step.samples
        if gathered is not None:
            total += gathered.gradient[step.where]
            samples += gathered.samples
        if self._foresight is None:
            total *= self._round_rate(samples, step.time)
            return self._surely(lambda: self.vectors.bears_move(step.where, total, most))
        total *= self._round_share(samples)
        if not largest(total) <= _SQUARABLE:
            return False
        rate = self._learning_rate(step.time)
        return self._surely(lambda: self.vectors.bears_gradient(step.where, total, rate, most))

    def bears_end(self, gathered: Gathered, most: float) -> bool:
        """The same of a whole round, whose rate may be another one by now."""
        if not gathered.samples:
            return True
        with np.errstate(over="ignore", invalid="ignore"):
            if self._foresight is None:
                by = self._round_rate(gathered.samples, gathered.time) * gathered.total
                return self._surely(lambda: self.vectors.bears_move(slice(None), by, most))
            gradient, rate = self._round_gradient(gathered), self._learning_rate(gathered.time)
            return self._surely(lambda: self.vectors.bears_gradient(slice(None), gradient, rate, most))

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
        if self._foresight is not None:
            self._optimize(self._foresight, step)
        else:
            self.vectors.descend(step.where, step.delta, step.base, self._rate(step))
        if step.statistics.size:
            self._follow(step.statistics, self.version - step.base)
        self._made(1)

    def _optimize(self, foresight: Foresight, step: Step) -> None:
        """Weigh; wait for others, if several updates make a step; clip; step."""
        how, weight, rate = self.regime.how, self._weight(step), self._learning_rate(step.time)
        entries = step.where, step.delta, step.base, weight
        most, waiting = abs(float(weight)) * largest(step.delta), self._waiting + 1
        if self._gathers:
            most += self._gathered_most
            if waiting < how.together:
                self.vectors.gather(*entries)
                self._waiting, self._gathered_most = waiting, most
                return
            most /= waiting

        def take() -> None:
            if self._gathers:
                self.vectors.gather(*entries)
                self.vectors.mean(waiting)
            else:
                self.vectors.weigh(*entries)
            shortened = None
            if how.clip:
                shortened = shortening(math.sqrt(self.vectors.squares(0.0)), how.clip)
            self.vectors.step(rate, shortened)

        self._surely(take)
        self._waiting, self._gathered_most = 0, 0.0
        foresight.took(most)
        if how.is_plain:  # what waited is of a regime before
            self.vectors.optimize_no_more()
            self._foresight, self._gathers = None, False

    def told_weight(self, step: Step) -> float:
        """How much a step counts by the samples that its device tells of. Nothing else that is said of an
        update makes it count more.
        """
        return step.samples if self.regime.rounds else stream_share(step, self.regime.base_batch)

    def changes(self, where: Where) -> Where:
        """Which parameters the next version changes, whose update touches these."""
        if not self._gathers:
            return where
        if self._waiting + 1 < self.regime.how.together:
            return np.zeros(0, np.int64)
        if isinstance(where, slice):
            return where
        return np.union1d(self._surely(lambda: self.vectors.gathered_places()), where)

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
        elif self._foresight is None:
            self.vectors.move(self._round_rate(gathered.samples, gathered.time) * gathered.total)
        else:
            gradient = self._round_gradient(gathered)
            self.vectors.step_with(gradient, self._learning_rate(gathered.time))
            self._foresight.took(largest(gradient))
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
        self.vectors.follow(statistics, max(_LEAST_LAG, behind))

    def _take_in(self, count: int) -> None:
        """average <- (1 - w) average + w theta, w = (eta + 1) / (t + eta), for the t-th time.

        Polynomial-decay averaging (O. Shamir and T. Zhang, "Stochastic gradient descent for non-smooth
        optimization", ICML 2013): old versions are forgotten at a pace that slows down as the run goes on.
        """
        eta = self.regime.average
        self.vectors.take_in(np.float32((eta + 1) / (count + eta)))


class _Surely:
    """theta where one looks, whatever gets lost meanwhile."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self.size = parameters.size

    def __getitem__(self, where: Where, /) -> NDArray[np.float32]:
        return self._parameters.read(where)
