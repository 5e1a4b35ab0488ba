"""The optimizers of a device's own steps (run.local_optimizer).

    theta <- theta - local_rate d

The update is the sum of the directions d. The device moves between its gradients, so not by the last d. The
server applies the sum with its own learning rate. For a gradient g at theta, with theta_0 the first theta:

    g <- g + proximal (theta - theta_0)                                  FedProx (T. Li et al., 2020)
    d = g                                                                sgd
    v <- momentum v + g;  d = g + momentum v                             with Nesterov's momentum
    m, s: the means of g and g^2, without bias;  d = m / (sqrt(s) + 1e-8)    adam: betas 0.9 and 0.999
    d = max(0.05, min(RMS(theta), S)) u / max(1, RMS(u) / 1.5), u = g / sqrt(V)    adafactor (adafactor.py)

Each update resets the state, except adafactor's second moments. All backends use float32 on the CPU here.
"""

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.training.adafactor import Adafactor
from edgeflock.shared.protocol.messages import Welcome

Vector = NDArray[np.float32]

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
