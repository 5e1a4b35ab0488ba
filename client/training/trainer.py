"""A device's step: computes an Update from a model and batches (AdaComp, algorithm 1, lines 5 and 6).

It uses no sockets and no clocks: equal backends, batches and models give equal updates.
"""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend
from edgeflock.client.data import Batches, EvaluatedBatches, PolicyBatches
from edgeflock.client.training.calibration import Calibration
from edgeflock.client.training.local_optimizer import Adafactor, LocalOptimizer
from edgeflock.client.training.personal import PersonalBackend
from edgeflock.client.training.private_steps import PrivateSteps
from edgeflock.client.training.selector import (
    LocalSteps,
    SelectionMemory,
    accumulate,
    encode_update,
    mark_sent,
    select,
    take_back,
)
from edgeflock.shared.codecs import values
from edgeflock.shared.errors import ConfigError, Diverged, EdgeflockError, TrainingFailed
from edgeflock.shared.model.fields import Inputs
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Update, Welcome

_MAX_NON_FINITE = 20
"""The model counts as diverged after this many gradients in a row that are not finite."""


class Stopped(Exception):
    """A step was stopped, since its result is not needed any more."""


class Trainer:
    """Makes the updates of one run. It keeps the unsent entries between steps."""

    def __init__(
        self, backend: Backend, batches: Batches, welcome: Welcome, rest: Callable[[], None] = lambda: None
    ) -> None:
        """`rest` returns once the next batch may be computed."""
        self._rest = rest
        self._backend = backend
        self._batches = batches
        self._welcome = welcome
        self._memory = self._memory_before = SelectionMemory()
        decay = welcome.adafactor
        self._adafactor = Adafactor(backend.layout.parameters, decay, welcome.start) if decay else None
        self._calibration = (
            Calibration(backend.layout.parameters, welcome.batch) if welcome.balances else None
        )
        self._policy_batches = batches if isinstance(batches, PolicyBatches) else None
        self._evaluated = batches if welcome.evaluate and isinstance(batches, EvaluatedBatches) else None
        self._personal = backend if isinstance(backend, PersonalBackend) else None
        self._private_steps = PrivateSteps(welcome, batches) if welcome.examples else None
        self._has_trained = False

    @property
    def layout(self) -> Layout:
        """The layout of the model. It must equal the server's."""
        return self._backend.layout

    def step(
        self,
        theta: NDArray[np.float32],
        base: int,
        sequence: int,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Update:
        """Return the update `sequence` from `theta`, the model at version `base`: float32 [P + B].

        `theta` is not modified. It takes one batch for each local step of the run. Raises Stopped once
        `stopped` returns true. Raises Diverged if the batches do not give finite numbers.
        """
        self._memory_before = self._memory
        if sequence % max(1, self._welcome.evaluate) == 0:
            self._evaluate(theta)
        steps, layout = self._descend(theta, stopped), self.layout.parameters
        direction = steps.gradient
        if self._calibration is not None:
            direction = np.float32(self._calibration.importance) * direction
        selection, self._memory = select(
            self._memory, direction, layout, self._welcome, theta, sequence, base
        )
        update = encode_update(steps, selection, layout, sequence, base)
        if self._adafactor is not None:
            update = replace(update, moments=self._adafactor.report(base))
        if self._calibration is not None:
            update = replace(update, labels=self._calibration.report(base))
        return replace(update, loss=math.nan) if self._welcome.private else update

    def contribute(self, theta: NDArray[np.float32], base: int) -> LocalSteps:
        """Return what the device may add to a secure sum: its gradient with the unsent entries, [P].

        It counts as unsent until `mark_summed`. Raises as `step`.
        """
        steps = self._descend(theta, lambda: False)
        self._memory_before = self._memory
        corrected, self._memory = accumulate(self._memory, steps.gradient, self._welcome.feedback, base)
        return replace(steps, gradient=corrected)

    def mark_summed(self, positions: NDArray[np.int64]) -> None:
        """Mark entries of the last contribution as sent: they are in a sum that is in the model."""
        self._memory = mark_sent(self._memory, positions)

    def gradient(self, theta: NDArray[np.float32], stopped: Callable[[], bool] = lambda: False) -> LocalSteps:
        """Compute a step on the next batch from theta (float32 [P + B]), and skip non-finite gradients.

        Raises Diverged after too many of these, and Stopped once `stopped` returns true. Raises
        TrainingFailed if the backend fails after an earlier success, and ConfigError if it cannot train on
        the data.
        """
        if self._private_steps is not None:
            self._rest()
            if stopped():
                raise Stopped
            return self._private_steps.take(theta, self._compute)
        for _ in range(_MAX_NON_FINITE):
            self._rest()
            if stopped():
                raise Stopped
            if self._policy_batches is not None:
                self._policy_batches.act(theta)
            x, y = self._batches.take(self._welcome.batch)
            point = theta if self._calibration is None else self._calibration.shift(theta)
            loss, gradient, statistics, right, samples = self._compute(point, x, y)
            if _is_finite(gradient) and (np.abs(statistics) <= values.LARGEST_STATISTIC).all():
                if self._calibration is not None:
                    self._calibration.observe(gradient, y)
                if self._personal is not None:
                    self._personal.step()
                self._batches.record_result(loss, right)
                return LocalSteps(loss, gradient, statistics, len(y) if samples is None else samples)
        beyond = f" or statistics beyond {values.LARGEST_STATISTIC:g}" if self.layout.buffers else ""
        raise Diverged(
            f"{_MAX_NON_FINITE} batches in a row gave NaN or infinite gradients{beyond}: the model has "
            "diverged or the data are broken; lower coordination.learning_rate, scale the inputs"
        )

    def take_back(self) -> None:
        """Mark the last update's entries as unsent, since it was refused."""
        self._memory = take_back(self._memory)

    def store_fleet(self, moments: bytes, labels: bytes) -> None:
        """Store the fleet's moments and labels of a Receipt, if not empty. Raises WrongDtype."""
        if self._calibration is not None:
            self._calibration.take(labels)
        if self._adafactor is not None:
            overlap = 1.0 if self._calibration is None else self._calibration.overlap
            self._adafactor.take(moments, overlap)

    def undo(self) -> None:
        """Undo the last step, except in Adafactor, which has already used its gradient.

        Its update was refused for its size, or another device's counts for the same data.
        """
        self._memory = self._memory_before

    def forget(self) -> None:
        """Discard unsent gradients and second moments: the new model does not continue the last one."""
        self._memory = self._memory_before = self._memory.without_entries()
        if self._adafactor is not None:
            self._adafactor = Adafactor(self.layout.parameters, self._welcome.adafactor, self._welcome.start)

    def _evaluate(self, theta: NDArray[np.float32]) -> None:
        """Evaluate theta on the device's own held-out data, if it has such. Raises TrainingFailed."""
        if self._evaluated is None:
            return
        self._rest()
        try:
            self._evaluated.evaluate(theta)
        except EdgeflockError:
            raise
        except Exception as error:  # as in `_compute`
            raise TrainingFailed(f"{type(error).__name__}: {error}") from error

    def _compute(self, theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]) -> Gradient:
        """Return the backend's gradient. A failure after a success may be temporary, e.g. lack of memory."""
        try:
            gradient = self._backend.gradient(theta, x, y)
        except ConfigError as error:
            if not self._has_trained:
                raise
            raise TrainingFailed(str(error)) from error.__cause__ or error
        except EdgeflockError:
            raise
        except Exception as error:  # a model, a driver or an app may raise anything
            raise TrainingFailed(f"{type(error).__name__}: {error}") from error
        self._has_trained = True
        return gradient

    def _descend(self, theta: NDArray[np.float32], stopped: Callable[[], bool]) -> LocalSteps:
        """Compute the run's local steps from theta on and return their sum.

        If training fails, what the steps changed is restored: the next attempt takes the same batches.
        """
        adafactor = copy(self._adafactor)
        restore = None if self._personal is None else self._personal.checkpoint()
        try:
            return self._sum_steps(theta, stopped)
        except TrainingFailed:
            self._adafactor = adafactor
            if restore is not None:
                restore()
            raise

    def _sum_steps(self, theta: NDArray[np.float32], stopped: Callable[[], bool]) -> LocalSteps:
        first, steps = self.gradient(theta, stopped), self._welcome.local_steps
        if steps == 1:
            if self._adafactor is None:
                return first
            return replace(
                first, gradient=self._adafactor.direction(theta[: first.gradient.size], first.gradient)
            )
        local = LocalOptimizer(theta[: first.gradient.size], self._welcome, self._adafactor)
        theta, rate = theta.copy(), np.float32(self._welcome.local_rate)
        parameters = theta[: first.gradient.size]
        loss, samples = first.loss, first.samples
        # A copy, since momentum keeps it, and the backend's next gradient may overwrite it.
        gradient = direction = local.direction(parameters, first.gradient.copy())
        statistics = first.statistics.copy()
        for _ in range(steps - 1):
            parameters -= rate * direction
            step = self.gradient(theta, stopped)
            direction = local.direction(parameters, step.gradient)
            gradient += direction
            statistics += step.statistics
            loss += step.loss
            samples += step.samples
        return LocalSteps(loss / steps, gradient, statistics / np.float32(steps), samples)


def _is_finite(gradient: NDArray[np.float32]) -> bool:
    """Return whether all entries are finite. A finite sum of squares is faster to check and implies it."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.dot(gradient, gradient)) or np.isfinite(gradient).all())
