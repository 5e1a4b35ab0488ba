"""How a gradient, or a mean of changes, moves parameters: each with its own state, in place."""

from dataclasses import dataclass

import numpy as np

from benchmarks.learning.rivals.channel import Vector

_F = np.float32


@dataclass(slots=True)
class Momentum:
    """SGD with momentum: v <- momentum v + g; theta <- theta - rate v.

    Nesterov's is theta <- theta - rate (g + momentum v).
    Y. Nesterov, 1983, as I. Sutskever et al., ICML 2013, and torch.optim.SGD have it.
    """

    rate: float
    momentum: float = 0.0
    nesterov: bool = False
    velocity: Vector | None = None

    def __call__(self, theta: Vector, gradient: Vector) -> None:
        if not self.momentum:
            theta -= _F(self.rate) * gradient
            return
        before = np.zeros_like(gradient) if self.velocity is None else self.velocity
        self.velocity = _F(self.momentum) * before + gradient
        ahead = gradient + _F(self.momentum) * self.velocity if self.nesterov else self.velocity
        theta -= _F(self.rate) * ahead


@dataclass(slots=True)
class AdamState:
    """AdamW: theta <- theta - rate (m' / (sqrt(v') + epsilon) + decay theta).

    m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g^2. m' and v' are corrected for their start
    unless `corrected` is false.
    D. Kingma and J. Ba, ICLR 2015, algorithm 1; `decay` as in I. Loshchilov and F. Hutter, "Decoupled weight
    decay regularization", ICLR 2019, algorithm 2.
    """

    rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    decay: float = 0.0
    corrected: bool = True
    count: int = 0
    first: Vector | None = None
    second: Vector | None = None

    def __call__(self, theta: Vector, gradient: Vector) -> None:
        m = np.zeros_like(gradient) if self.first is None else self.first
        v = np.zeros_like(gradient) if self.second is None else self.second
        self.count += 1
        self.first = m = _F(self.beta1) * m + _F(1 - self.beta1) * gradient
        self.second = v = _F(self.beta2) * v + _F(1 - self.beta2) * gradient * gradient
        if self.corrected:
            m, v = m / _F(1 - self.beta1**self.count), v / _F(1 - self.beta2**self.count)
        if self.decay:
            theta *= _F(1 - self.rate * self.decay)
        theta -= _F(self.rate) * m / (np.sqrt(v) + _F(self.epsilon))
