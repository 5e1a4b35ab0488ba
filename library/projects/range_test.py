"""Which learning rate a model takes on its data: the range test.

    theta <- theta - r d,  r = r_0 (r_n / r_0)^(i / n) at step i of n

d is the direction of the run's own optimizers, on a device and at the server. The loss on a fixed probe falls
while r is of use, and rises once r is too large (L. N. Smith, "Cyclical learning rates for training neural
networks", WACV 2017, section 3.3). One device trains, densely and without delay.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend
from edgeflock.client.data import Batches
from edgeflock.client.training.local_optimizer import Adafactor, LocalOptimizer
from edgeflock.server.descent import Parameters, Regime, Step
from edgeflock.shared.data.samples import IGNORED
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.protocol.messages import Welcome

STEPS, SECONDS = 200, 10.0
"""Of a test, at most: of the processor."""

PROBE = 128
"""Samples whose loss is looked at."""

_RANGES = (1e-4, 10.0), (1e-9, 1e-4)
"""Of rates; the second one where the loss falls at none of the first."""
_POINTS = 50
"""Of the curve."""
_MIN_FALL = 0.02
"""Part of the first loss by which a loss falls that falls at all."""
_MIN_RISE = 0.2
"""Part of the fall by which the loss has risen that rises for good."""
_MARGIN = 4.0
"""How many times below the rate at which the loss rises a rate is that lasts for a run."""
_DIVERGED = 4.0
"""The test ends once the loss is so many times the first one."""

Probe = Callable[[NDArray[np.float32]], float]
"""theta, float32 [P + B] -> the mean loss of the samples that are looked at."""


@dataclass(frozen=True, slots=True)
class RangeTest:
    """What a test came to."""

    key: str
    """The setting of the rate."""
    configured: float
    steps: int
    first: float
    """The loss before it, and"""
    least: float
    """at its best."""
    constant: float | None
    """That of the best answer that is the same for all samples, where it is known."""
    rises: float | None
    """The rate at which the loss rose for good; None: it rose at none."""
    proposed: float | None
    """None: the loss fell at no rate."""

    def __str__(self) -> str:
        if self.proposed is None:
            return (
                f"none is proposed: the loss, {self.first:.3g}, fell at no rate from {_RANGES[-1][0]:g} to "
                f"{_RANGES[0][1]:g}"
            )
        rises = "rose at none" if self.rises is None else f"rose at {self.rises:.2g}"
        return (
            f"{self.key} = {self.proposed:g} is proposed: in {self.steps} steps the loss fell from "
            f"{self.first:.3g} to {self.least:.3g}, and {rises}"
        )

    @property
    def advice(self) -> str:
        """What to do about it; empty if nothing is wrong."""
        if self.proposed is None:
            return (
                "the loss falls at no learning rate: data or targets are broken, or no gradient reaches the "
                "parameters; look at a few samples and their targets, and at the model's last layer"
            )
        if self.rises is not None and self.configured >= self.rises:
            return (
                f"{self.key} = {self.configured:g} is beyond {self.rises:.2g}, at which the loss rose: set "
                f"{self.proposed:g}, or let --write do it"
            )
        if self.constant is not None and self.least >= self.constant:
            return (
                f"in {self.steps} steps the loss fell to {self.least:.3g}, and the same answer for all "
                f"samples has {self.constant:.3g}: the model needs longer, or inputs do not tell of targets"
            )
        return ""


def range_test(
    backend: Backend,
    batches: Batches,
    terms: Welcome,
    regime: Regime,
    theta: NDArray[np.float32],
    probe: Probe,
    key: str,
    constant: float | None = None,
    clock: Callable[[], float] = time.process_time,
) -> RangeTest:
    """Train from theta (float32 [P + B], left as it is) at a rate that rises.

    `terms` and `regime` say by which optimizers; `regime.learning_rate` is the configured rate.

    A function of its arguments, but that a model too slow for all of the steps takes fewer.
    """
    began = clock()
    first = _loss(probe, theta)
    probed = clock()
    backend.gradient(theta, *batches.take(terms.batch))  # the first one also warms up
    warm = clock()
    backend.gradient(theta, *batches.take(terms.batch))
    steps = _affordable_steps(probed - began, clock() - warm)
    for range_ in _RANGES:
        optimizer = _Optimizer(backend.layout, terms, regime, theta)
        curve = [(0.0, first), *_trace(backend, batches, terms.batch, optimizer, probe, first, range_, steps)]
        found = _conclude(curve, steps, key, regime.learning_rate, constant)
        if found.proposed is not None:
            break
    return found


def _affordable_steps(probe: float, step: float) -> int:
    """Return how many steps take at most SECONDS, given the seconds of a probe and of a step.

    STEPS is halved, so that the noise of a clock rarely changes the number.
    """
    steps = STEPS
    while steps > _POINTS // 2 and steps * step + min(steps, _POINTS) * probe > SECONDS:
        steps //= 2
    return steps


def _trace(
    backend: Backend,
    batches: Batches,
    batch: int,
    optimizer: "_Optimizer",
    probe: Probe,
    first: float,
    range_: tuple[float, float],
    steps: int,
) -> Iterator[tuple[float, float]]:
    """Yield (rate, the probe's loss after its step) at intervals, up to _DIVERGED times the first."""
    (least, largest), every = range_, max(1, steps // _POINTS)
    for step in range(steps):
        rate = least * (largest / least) ** (step / max(1, steps - 1))
        loss, gradient, statistics, *_ = backend.gradient(optimizer.theta, *batches.take(batch))
        if not (np.isfinite(loss) and np.isfinite(gradient).all() and np.isfinite(statistics).all()):
            yield rate, np.inf
            return
        optimizer.step(gradient, statistics, rate)
        if (step + 1) % every == 0:
            seen = _loss(probe, optimizer.theta)
            yield rate, seen
            if not seen <= first + (_DIVERGED - 1) * abs(first):
                return


def _conclude(
    curve: list[tuple[float, float]], steps: int, key: str, configured: float, constant: float | None
) -> RangeTest:
    """What (rate, loss) pairs say, the first of them before any step."""
    rates, losses = np.array([rate for rate, _ in curve]), np.array([loss for _, loss in curve])
    first, best = float(losses[0]), int(np.argmin(losses))
    least = float(losses[best])
    fall = first - least
    after = losses[best:]
    above = np.flatnonzero(after > least + _MIN_RISE * max(fall, _MIN_FALL * abs(first)))
    rises = float(rates[best + above[0]]) if above.size else None
    proposed = None
    if fall > _MIN_FALL * abs(first):
        top = rates[best] if rises is None else rises
        proposed = float(f"{top / _MARGIN:.1e}")
    return RangeTest(key, configured, steps, first, least, constant, rises, proposed)


class _Optimizer:
    """The direction of a device, and the step of the server that follows it: a fleet of one."""

    def __init__(self, layout: Layout, terms: Welcome, regime: Regime, theta: NDArray[np.float32]) -> None:
        settings = replace(regime.method, schedule="constant", warmup=0.0, together=1)
        self._regime = replace(regime, method=settings, average=0.0, rounds=False, base_batch=0, rule="none")
        self._parameters = Parameters(
            0, theta.copy(), buffers=layout.buffers, norms=layout.norms, regime=self._regime, start=0
        )
        self._trained = layout.parameters.size
        adafactor = Adafactor(layout.parameters, terms.adafactor, terms.start) if terms.adafactor else None
        self._local = LocalOptimizer(theta[: self._trained], terms, adafactor)

    @property
    def theta(self) -> NDArray[np.float32]:
        return self._parameters.theta

    def step(self, gradient: NDArray[np.float32], statistics: NDArray[np.float32], rate: float) -> None:
        """Apply theta <- theta - rate d."""
        direction = self._local.direction(self.theta[: self._trained].copy(), gradient.copy())
        parameters = self._parameters
        parameters.regime = replace(self._regime, learning_rate=rate)
        with np.errstate(over="ignore", invalid="ignore"):
            parameters.apply(
                parameters.limit(Step(parameters.version, slice(None), direction, statistics.copy()))
            )


def _loss(probe: Probe, theta: NDArray[np.float32]) -> float:
    loss = probe(theta)
    return loss if np.isfinite(loss) else np.inf


def constant_loss(loss: str, y: NDArray[np.generic]) -> float | None:
    """The loss of the best answer that is the same for all samples; None of a loss that nobody knows."""
    if loss not in LOSSES or not y.size:
        return None
    if loss == "cross_entropy" and y.dtype.kind == "i":
        _, counts = np.unique(y.astype(np.int64)[y != IGNORED], return_counts=True)
        if not counts.size:
            return None
        shares = counts / counts.sum()
        return float(-(shares * np.log(shares)).sum())
    if loss == "mse":
        return float(np.var(y.astype(np.float64), axis=0).mean())
    return None
