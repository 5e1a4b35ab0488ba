"""theta, its version, and the rule that makes the next version. A replay of the journal reproduces them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.gathering import Gathered
from edgeflock.server.descent.memory import OptimizerMemory
from edgeflock.server.descent.noise import TreeNoise, bound_norm
from edgeflock.server.descent.part import Part, Vectors, VectorState
from edgeflock.server.descent.rates import SCHEDULES, rate_factor
from edgeflock.server.descent.recoverable import RecoverableVectors
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.statistics import LIMITED, Running
from edgeflock.server.descent.step import Index, Step
from edgeflock.server.descent.stepper import Stepper
from edgeflock.server.descent.weighting import batch_share, rule

Place = Callable[[VectorState, Iterable[Step]], Vectors]
"""Creates the vectors: a `Part` in this process, or model shards."""

_STRIDE = 16
"""The average includes every 16th version: it is as good, and the cost an update becomes negligible."""

_MIN_LAG = 10
"""Running statistics move at most a tenth of the way to those of an update."""


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
        start_time: float | None = None,
        place: Place = Part,
    ) -> None:
        """Start with theta at `version`, under `regime` from now on.

        `theta` and `average` are changed in place if `place` keeps them in this process. `memory` is the
        optimizer's state, from `packed_memory`.

        The last `buffers` entries of theta are running statistics. Steps carry values for them.
        `norms` assigns them to layers, as Layout.norms does.
        `recent` are the steps that made the versions after `start`. Updates based on versions before `start`
        are not admitted. `start_time` is the time of the run's first step.

        Raises ConfigError if the optimizer is unknown, ValueError if `memory` is invalid.
        """
        self.version = version
        self.regime = regime
        self.start_time = start_time
        """The time of the run's first step; None: there is none yet."""
        self.start = start
        """Updates based on versions before `start` are not admitted."""
        self.store = RecoverableVectors(theta.size)
        """The vectors with the state of each parameter."""
        self._rule = rule(regime.rule)
        SCHEDULES.lookup(regime.method.schedule, "optimizer.schedule")
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
        """Continue from this model and state."""
        state_memory = OptimizerMemory.unpack(memory, theta.size - self._buffers)
        state = VectorState(theta, average, state_memory, self._buffers, self.regime, self.start)
        limited = self.regime.method.statistics == LIMITED
        self._running = Running(theta[theta.size - self._buffers :], self._norms) if limited else None
        """A copy of the running statistics, if the regime limits those of steps; else None."""
        self._stepper = Stepper(state, self.store)
        method = self.regime.method
        stepped = self.version - state_memory.waiting
        self.noise = TreeNoise(method, state.trained, stepped, state_memory.noise) if method.bound else None
        """The noise of a private run; else None."""
        self.store.begin(lambda: self._place(state, recent))

    @property
    def theta(self) -> NDArray[np.float32]:
        """[P + B]."""
        return self.store[:]

    @property
    def average(self) -> NDArray[np.float32] | None:
        """The averaged model, if the regime keeps one: the polynomial-decay average of the versions.

        It is the model to use. Devices train on theta.
        """
        return self.store.retry(lambda: self.store.vectors.average) if self.regime.average else None

    def included_version(self, version: int) -> int:
        """Return the last version of theta that the model to use at `version` includes."""
        return version - version % _STRIDE if self.regime.average else version

    def packed_memory(self) -> bytes | None:
        """Encode the optimizer's state; None if there is none."""
        return self._stepper.packed_memory(self.noise.pack() if self.noise is not None else b"")

    def end_tree(self) -> None:
        """End the tree of the noise before its last step. Updates that wait are part of the next one."""
        assert self.noise is not None, "only a private run has noise"
        method = self.regime.method
        self.regime = replace(self.regime, method=replace(method, trees_ended=method.trees_ended + 1))
        self.noise.end_tree(self.version - self.waiting)

    def memory_of(self, past: "Parameters") -> bytes | None:
        """Return the optimizer's state of `past`, to go back to.

        In a private run, updates that waited then have made a step since. They must not count again.
        """
        memory = past.packed_memory()
        if self.noise is None:
            return memory
        return OptimizerMemory.unpack(memory, self.store.size - self._buffers).without_waiting().pack()

    @property
    def waiting(self) -> int:
        """How many updates wait for others to make a step."""
        return self._stepper.waiting

    def go_back(
        self, theta: NDArray[np.float32], average: NDArray[np.float32] | None, memory: bytes | None = None
    ) -> None:
        """Make this model the next version. Only updates based on this version or later ones are admitted."""
        self.version += 1
        self.start = self.version
        self._begin(theta, average, memory)

    @property
    def oldest(self) -> int:
        """The oldest version that an update may be based on."""
        if self.regime.rounds:
            return self.version
        return max(self.start, self.version - self.regime.window + 1)

    def fits(self, step: Step, limit: float, gathered: Gathered | None = None) -> bool:
        """Whether no trained parameter exceeds `limit` in magnitude after `step`.

        A parameter that was beyond `limit` before must not move further away. In rounds, it checks a round
        that ends with `gathered` and `step`. It skips parameters without an entry in `step`: more samples do
        not move them further.

        Running statistics are not checked. They are sent at half precision, and stay within the sent range.
        """
        rate = self.learning_rate(step.time, None if gathered is None else gathered.start_time)
        if not self.regime.rounds:
            return self._stepper.fits(step, self._weight(step), rate, limit)
        with np.errstate(over="ignore", invalid="ignore"):
            total, samples = np.float32(step.samples) * step.delta, step.samples
            if gathered is not None:
                total += gathered.gradient[step.indices]
                samples += gathered.samples
        weight, total_step = self._round_weight(samples), replace(step, delta=total)
        return not step.samples or self._stepper.fits(total_step, weight, rate, limit, samples)

    def limit(self, step: Step) -> Step:
        """Return `step` with its norm, or its running statistics, limited as the regime says.

        Each step is limited before it is applied or gathered.
        """
        if self.noise is not None:
            return bound_norm(step, self.regime.method.update_bound)
        if self._running is None or not step.statistics.size:
            return step
        statistics, beyond = self._running.limit(step.statistics)
        return replace(step, statistics=statistics, excess=beyond)

    def set_node_count(self, nodes: int) -> None:
        """Set the number of nodes that train at a time (StepMethod.nodes)."""
        method = replace(self.regime.method, nodes=nodes)
        self.regime, self._stepper.unit = replace(self.regime, method=method), method.unit

    def apply(self, change: Step | Gathered, limit: float = inf) -> bool:
        """Apply a step as the next version, or a round as one version for each of its steps.

        Of a round only the last of these versions exists: w <- w - eta_scaled sum_i r_i g_i over its steps
        (ScaDLES, equations 4a to 4c). If the change does not fit, as `fits` says, change nothing: False.
        """
        start_time = change.time if isinstance(change, Step) else change.start_time
        rate = self.learning_rate(change.time, start_time)
        if self.noise is not None:  # noise is drawn once: whether a step fits must not decide on it
            self._step_privately(self.noise, change, rate)
            fits = True
        elif isinstance(change, Step):
            fits = self._stepper.take(change, self._weight(change), rate, limit=limit)
        elif samples := change.samples:
            step = Step(self.version, slice(None), change.total, time=change.time)
            fits = self._stepper.take(step, self._round_weight(samples), rate, samples, limit)
        else:  # a defence has rejected all of the round
            fits = True
        if not fits:
            return False
        if self.start_time is None:
            self.start_time = start_time
        if isinstance(change, Step):
            if change.statistics.size:
                self._follow(change.statistics, self.version - change.base)
            self._advance(1)
        else:
            if change.measured_samples:
                self._follow(change.statistics / np.float32(change.measured_samples), 0)
            self._advance(change.steps)
        return True

    def _step_privately(self, noise: TreeNoise, change: Step | Gathered, rate: float) -> None:
        """Add an update to those that wait, or make a step with noise on every entry.

        Noise on the sent entries alone would show which entries the devices' data selected. Those of a secure
        sum follow from public facts, so the others are 0 whatever the data. The sum is divided by a number
        that the settings have.
        """
        if isinstance(change, Gathered):
            where = change.indices if self.regime.method.summed else slice(None)
            total = noise.add(change.total, self.version + change.steps, where)[where]
            self._stepper.take(Step(self.version, where, total), 1.0, rate, self.regime.method.group)
        elif not self._stepper.is_completing:
            self._stepper.take(change, self._weight(change), rate)
        else:
            gathered = self.store.vectors.memory.gathered
            waiting = np.float32(0) if gathered is None else gathered
            total = np.zeros(self.store.size - self._buffers, np.float32)
            total[change.indices] = np.float32(self._weight(change)) * change.delta
            total = noise.add(waiting + total, self.version + 1) - waiting
            self._stepper.take(replace(change, indices=slice(None), delta=total), 1.0, rate)

    def _advance(self, versions: int) -> None:
        before, self.version = self.version, self.version + versions
        if self.regime.average:
            for count in range(before // _STRIDE + 1, self.version // _STRIDE + 1):
                self._update_average(count)

    def reported_weight(self, step: Step) -> float:
        """Return the weight of a step by the sample count that its device reports.

        No other field of an update can increase its weight.
        """
        return step.samples if self.regime.rounds else batch_share(step.samples, self.regime.base_batch)

    def changed_indices(self, indices: Index) -> Index:
        """Return the parameters that the next version changes, if its update touches `indices`."""
        if self.noise is not None and self._stepper.is_completing and not self.regime.method.summed:
            return slice(None)
        return self._stepper.changed_indices(indices)

    def learning_rate(self, time: float, round_start: float | None = None) -> float:
        """Return the learning rate of the next version, made at `time`, by the regime's schedule.

        `round_start` is the time of the first step of its round: the run's first step may be in it.
        """
        method, start = self.regime.method, self.start_time
        if start is None:
            start = time if round_start is None else round_start
        seconds = max(0.0, time - start)
        return self.regime.learning_rate * rate_factor(
            method, self.version if method.by == "updates" else seconds
        )

    def _weight(self, step: Step) -> float:
        """Return the weight of a step, without the per-parameter staleness.

        With n nodes, each step counts 1 / n, and the rule counts n steps as one version.
        """
        nodes = self.regime.method.nodes
        turns = -(-self._stepper.steps_since(step.base, self.version) // nodes)
        share = batch_share(step.samples, self.regime.base_batch)
        return self._rule.weight(step, step.base + turns) * share / nodes

    def _round_weight(self, samples: int) -> float:
        return batch_share(samples, self.regime.base_batch)

    def _follow(self, statistics: NDArray[np.float32], staleness: int) -> None:
        """Compute b <- b + (s - b) / max(10, tau) for the running statistics b; tau is `staleness`.

        It does not depend on the rule or the learning rate. With one device it is BatchNorm with torch's
        momentum of 0.1. In a fleet, tau is about the number of devices: each has its share in the average.

        s holds the statistics of the device's batches, not the change of the device's own statistics. Devices
        that start from the same old statistics would send the same change. The sum of the changes could go
        beyond all measured values, even to a negative variance.
        """
        lag = max(_MIN_LAG, staleness)
        self.store.vectors.follow(statistics, lag)
        if self._running is not None:
            self._running.follow(statistics, lag)

    def _update_average(self, count: int) -> None:
        """Compute average <- (1 - w) average + w theta, w = (eta + 1) / (t + eta), for the t-th time.

        Polynomial-decay averaging (O. Shamir and T. Zhang, "Stochastic gradient descent for non-smooth
        optimization", ICML 2013): old versions are forgotten at a pace that slows down as the run goes on.
        """
        eta = self.regime.average
        self.store.vectors.update_average(np.float32((eta + 1) / (count + eta)))
