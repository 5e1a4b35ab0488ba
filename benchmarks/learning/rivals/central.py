"""One machine with all data: the ceiling; and synchronous rounds of single gradients."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from benchmarks.learning.rivals.channel import Vector
from benchmarks.learning.rivals.federation import STATISTICS, Federation
from benchmarks.learning.rivals.moves import AdamState, Momentum


@dataclass(frozen=True, slots=True)
class Sgd:
    """SGD with momentum on all data: v <- momentum v + g; theta <- theta - rate v.

    B. Polyak, "Some methods of speeding up the
    convergence of iteration methods", 1964, equation 9; I. Sutskever et al., ICML 2013, equations 1 and 2.
    """

    rate: float
    momentum: float = 0.0
    values: ClassVar[str] = "f32"
    central: ClassVar[bool] = True

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each gradient."""
        return _alone(federation, Momentum(self.rate, self.momentum))


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam on all data. D. Kingma and J. Ba, "Adam", ICLR 2015, algorithm 1."""

    rate: float
    values: ClassVar[str] = "f32"
    central: ClassVar[bool] = True

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each gradient."""
        return _alone(federation, AdamState(self.rate))


def _alone(federation: Federation, move: "Momentum | AdamState") -> Iterator[Vector]:
    (client,), theta = federation.clients, federation.theta
    while True:
        theta = client.descend(theta, 1, move)
        federation.seconds += client.seconds(1)
        yield theta


@dataclass(frozen=True, slots=True)
class SyncSgd:
    """Synchronous SGD: v <- momentum v + mean_k g_k, theta <- theta - rate v.

    Each round, every client computes a gradient at the model. J. Chen et al.,
    "Revisiting distributed synchronous SGD", 2016, equations 2 to 4.
    """

    rate: float
    momentum: float = 0.0
    values: ClassVar[str] = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each round."""
        theta, size, version = federation.theta.copy(), federation.parameters, 0
        move, channel = Momentum(self.rate, self.momentum), federation.channel
        while True:
            total, slowest, present = np.zeros_like(theta), 0.0, federation.present
            for number in present:
                client = federation.clients[number]
                found = np.concatenate(client.gradient(channel.down(number, version, theta)))
                total += channel.up(version, found, *client.reported(1))
                slowest = max(slowest, client.seconds(1))
                federation.draw_crash(number, 1)
            mean = total / np.float32(len(present))
            move(theta[:size], mean[:size])
            theta[size:] += STATISTICS * (mean[size:] - theta[size:])
            federation.seconds += slowest
            version += 1
            yield theta.copy()
