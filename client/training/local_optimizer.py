"""The optimizers of a device's own steps (local.optimizer), and Adafactor, which also scales updates.

    theta <- theta - local_rate d

The update is the sum of the directions d. The device moves between its gradients, so not by the last d. The
server applies the sum with its own learning rate. For a gradient g at theta, with theta_0 the first theta:

    g <- g + proximal (theta - theta_0)                                  FedProx (T. Li et al., 2020)
    d = g                                                                sgd
    v <- momentum v + g;  d = g + momentum v                             with Nesterov's momentum
    m, s: the means of g and g^2, without bias;  d = m / (sqrt(s) + 1e-8)    adam: betas 0.9 and 0.999

Each update resets the state, except adafactor's second moments. All backends use float32 on the CPU here.

Adafactor divides each entry of a gradient by its usual size.

    M <- decay M + (1 - decay) mean(g^2),  M^ = M / (1 - decay^t)      of each row and column
    V = R C^T / mean(R),                    R and C: those of (o^2 / 2) M^ + (1 - o^2 / 2) M^ of the fleet
    u = clip(g / sqrt(V), -10, 10)                                     a tensor at a time
    d = max(0.05, min(RMS(theta), S)) u / max(1, RMS(u) / 1.5),    S = 1.5 max(0.05, RMS(theta_0))

theta_0 is the first model of the run. A step relative to theta alone makes theta grow by a fraction of
itself. Late in a run, when gradients are mostly noise, the growth is exponential. After 22,000 gradients of
CIFAR-10 the last matrix was 37 times its first size, and the run diverged (docs/optimizers.md). So a step is
relative to 1.5 times theta_0 at bound, and weights grow as the root of the number of steps. With a
limit of 1 times theta_0, A2C reached a return of 395 on CartPole in place of 500. With 3 times theta_0, a run
of 32,000 gradients of CIFAR-10 diverged too.

The means M are the device's own (codecs/moments.py). Some updates include them, and the receipt returns the
mean over the fleet. With the fleet's means in V all devices scale alike: a device with one class has small
gradients once that class is learned, and so makes small steps. The device's own means are current, while the
fleet's may be old, and they change fast at first. So half of V is the device's own, and less where its labels
differ from the fleet's: o is their overlap (calibration.py), 1 while unknown. Before the fleet's means
arrive, V uses its own alone.

Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018: the factored
second moment of section 3, the update clipping of section 6 at 1.5, the relative step of section 8 up to a
limit, and a constant decay. It has no momentum, since staleness acts as momentum. The device scales before it
selects entries, so it selects among steps. A restarted device resets M.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.training.calibration import ReportSchedule
from edgeflock.shared.codecs import moments
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Start
from edgeflock.shared.protocol.messages import Welcome

Vector = NDArray[np.float32]

MIN_SCALE = 0.05
"""Lower bound of a tensor's RMS, so that a tensor of zeros can change."""

_MAX_SCALE = 1.5
"""Upper bound of a tensor's RMS, in multiples of its RMS in the first model."""

_MAX_RMS = 1.5
"""Largest RMS(u): the update clipping."""

_MAX_ENTRY = np.float32(10)
"""Upper bound of an entry, in multiples of its usual size, to limit the effect of an outlier on its row."""

_WARM_UP = 10
"""Gradients before entries are limited to _MAX_ENTRY."""

_TINY = np.float32(1e-30)
_LARGEST = np.float32(1e18)
"""Its square fits float32."""


class Adafactor:
    """The second moments of a device's gradients, and the fleet's."""

    def __init__(self, layout: Layout, decay: float, start: Start | None = None) -> None:
        """`layout` is that of the P trained parameters; 0 < decay < 1.

        `start` describes the run's first model; None: the first theta passed to `direction` is used.
        """
        self._layout = layout
        self._tensors = [slice(*bounds) for bounds in pairwise(layout.bounds)]
        self._decay = decay
        self._own: Vector = np.zeros(int(layout.lines[-1]), np.float32)
        self._fleet: Vector | None = None
        """The fleet's row and column means, float32 [L]."""
        self._first_rms: list[float] = [] if start is None else [filling.rms for filling in start.tensors]
        """RMS(theta_0) of each tensor."""
        self._own_weight = np.float32(0.5)
        """o^2 / 2, the weight of the device's own means in V."""
        self._steps = 0
        self._reports = ReportSchedule(_is_power_of_two)

    def direction(self, theta: Vector, gradient: Vector) -> Vector:
        """Return d of `gradient` at theta, both float32 [P], as a new array."""
        direction = np.clip(gradient, -_LARGEST, _LARGEST)
        for part, bound in self._roots() if self._steps >= _WARM_UP else ():
            is_unknown, entries = ~(bound > 0), direction[part]
            bound *= _MAX_ENTRY
            bound[is_unknown] = _LARGEST
            np.minimum(entries, bound, out=entries)  # np.clip takes six times as long
            np.maximum(entries, np.negative(bound, out=bound), out=entries)
        self._steps += 1
        own = moments.factor(np.square(direction), self._layout)
        self._own = self._own + np.float32(1 - self._decay) * (
            own - self._own
        )  # a copy of this stays as it is
        for part, usual in self._roots():
            usual += _TINY
            entries = direction[part]
            entries /= usual
            np.clip(entries, -_MAX_ENTRY, _MAX_ENTRY, out=entries)
        scales = [_rms(theta[tensor]) for tensor in self._tensors]
        self._first_rms = self._first_rms or scales
        for tensor, scale, first in zip(self._tensors, scales, self._first_rms, strict=False):
            length = max(1.0, _rms(direction[tensor]) / _MAX_RMS)
            largest = _MAX_SCALE * max(MIN_SCALE, first)
            direction[tensor] *= np.float32(max(MIN_SCALE, min(scale, largest)) / length)
        return direction

    def report(self, base: int) -> bytes:
        """Return the second moments to send with the update just made from `base`: usually none."""
        return moments.encode(self._means()) if self._reports.is_due(base) else b""

    def take(self, octets: bytes, overlap: float = 1.0) -> None:
        """Store the fleet's second moments of a Receipt; empty: it has none. Raises WrongDtype.

        `overlap` is that of the device's labels and the fleet's.
        """
        self._own_weight = np.float32(overlap**2 / 2)
        if octets:
            self._fleet = moments.decode(octets, self._layout)

    def _means(self) -> Vector:
        """Return M^, the device's own row and column means: float32 [L]."""
        return self._own / np.float32(1 - self._decay**self._steps)

    def _roots(self) -> Iterator[tuple[slice, Vector]]:
        """Yield sqrt(V) of the entries, part by part (moments.roots)."""
        means = self._means()
        if self._fleet is not None:
            means = self._own_weight * means + (1 - self._own_weight) * self._fleet
        return moments.roots(means, self._layout)


def _is_power_of_two(update: int) -> bool:
    return update & (update - 1) == 0


def _rms(tensor: Vector) -> float:
    return math.sqrt(float(np.dot(tensor, tensor)) / max(1, tensor.size))


_BETAS = 0.9, 0.999
_EPSILON = np.float32(1e-8)


class LocalOptimizer:
    """Turns the gradients of one update's local steps into directions."""

    def __init__(self, theta: Vector, welcome: Welcome, adafactor: Adafactor | None = None) -> None:
        """Start from `theta`, float32 [P], which is not modified."""
        self._start = theta
        self._proximal = np.float32(welcome.proximal)
        self._momentum = np.float32(welcome.momentum)
        self._adam = welcome.adam
        self._adafactor = adafactor
        self._first: Vector = np.zeros(0, np.float32)
        self._second: Vector = np.zeros(0, np.float32)
        self._steps = 0

    def direction(self, theta: Vector, gradient: Vector) -> Vector:
        """Return d of the next step, from its gradient at theta. Neither is modified."""
        if self._proximal:
            gradient = gradient + self._proximal * (theta - self._start)
        if self._adafactor is not None:
            return self._adafactor.direction(theta, gradient)
        self._steps += 1
        if self._adam:
            return self._adam_direction(gradient)
        if not self._momentum:
            return gradient
        self._first = gradient if self._steps == 1 else self._momentum * self._first + gradient
        return gradient + self._momentum * self._first

    def _adam_direction(self, gradient: Vector) -> Vector:
        if self._steps == 1:
            self._first = self._second = np.zeros_like(gradient)
        parts = [np.float32((1 - beta) / (1 - beta**self._steps)) for beta in _BETAS]
        self._first = self._first + parts[0] * (gradient - self._first)
        self._second = self._second + parts[1] * (gradient * gradient - self._second)
        spread: Vector = np.sqrt(self._second)
        spread += _EPSILON
        return self._first / spread
