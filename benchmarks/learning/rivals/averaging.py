"""Rounds of a cohort that takes steps of its own: FedAvg, FedProx, FedAvgM, FedAdam."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from benchmarks.learning.rivals.channel import Vector
from benchmarks.learning.rivals.federation import Client, Federation
from benchmarks.learning.rivals.moves import AdamState, Momentum

Train = Callable[[int, Client, Vector], Vector]
"""(client's number, client, model) -> where its own steps lead."""


def rounds(
    federation: Federation,
    cohort: int,
    steps: Callable[[Client], int],
    train: Train,
    move: Callable[[Vector, Vector], None],
) -> Iterator[Vector]:
    """Yield theta after each round of a random cohort: the mean of their changes, weighted with n_k.

    `move` gets the parameters [P] and minus that mean, as if it were a gradient: the pseudo-gradient of
    S. Reddi et al. Running statistics go by the mean itself.
    """
    theta, size, version = federation.theta.copy(), federation.parameters, 0
    clients, channel = federation.clients, federation.channel
    while True:
        present = federation.present
        chosen = federation.random.choice(present, min(cohort, len(present)), replace=False).tolist()
        total, samples, slowest = np.zeros_like(theta), 0, 0.0
        for number in chosen:
            client = clients[number]
            start = channel.down(number, version, theta)
            count = steps(client)
            change = train(number, client, start) - start
            total += np.float32(client.share) * channel.up(version, change, *client.reported(count))
            samples += client.share
            slowest = max(slowest, client.seconds(count))
            federation.draw_crash(number, count)
        mean = total / np.float32(samples)
        move(theta[:size], -mean[:size])
        theta[size:] += mean[size:]
        federation.seconds += slowest
        version += 1
        yield theta.copy()


@dataclass(frozen=True, slots=True)
class FedAvg:
    """FedAvg: theta <- theta + server_rate sum_k (n_k / n) (theta_k - theta).

    theta_k is the model of client k after `steps` steps of SGD, or `epochs` epochs.
    B. McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS
    2017, algorithm 1. With `proximal` each step also goes back by mu (theta_k - theta): FedProx, T. Li et
    al., MLSys 2020, equation 2.
    """

    rate: float
    epochs: int = 1
    steps: int = 0
    """0: epochs count."""
    cohort: int = 10
    server_rate: float = 1.0
    proximal: float = 0.0
    values: str = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each round."""
        return _descending(self, federation, Momentum(self.server_rate))


@dataclass(frozen=True, slots=True)
class FedAvgM:
    """v <- beta v + delta; theta <- theta - server_rate v, where delta is minus FedAvg's mean change.

    T.-M. H. Hsu, H. Qi and M. Brown, "Measuring the effects of non-identical data distribution for federated
    visual classification", 2019, section 4.3.
    """

    rate: float
    epochs: int = 1
    steps: int = 0
    cohort: int = 10
    server_rate: float = 1.0
    beta: float = 0.9
    proximal: ClassVar[float] = 0.0
    values: ClassVar[str] = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each round."""
        return _descending(self, federation, Momentum(self.server_rate, self.beta))


@dataclass(frozen=True, slots=True)
class FedAdam:
    """FedAdam: Adam on delta, FedAvg's mean change.

    m <- beta1 m + (1 - beta1) delta; v <- beta2 v + (1 - beta2) delta^2;
    theta <- theta + server_rate m / (sqrt(v) + tau).
    S. Reddi et al., "Adaptive federated optimization", ICLR 2021, algorithm 2, with its beta1 0.9, beta2 0.99
    and tau 0.001. v begins at 0, not at tau^2: nothing else differs.
    """

    rate: float
    epochs: int = 1
    steps: int = 0
    cohort: int = 10
    server_rate: float = 0.01
    tau: float = 1e-3
    proximal: ClassVar[float] = 0.0
    values: ClassVar[str] = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each round."""
        return _descending(
            self, federation, AdamState(self.server_rate, 0.9, 0.99, self.tau, corrected=False)
        )


def _descending(
    how: FedAvg | FedAvgM | FedAdam, federation: Federation, move: Callable[[Vector, Vector], None]
) -> Iterator[Vector]:
    rate, mu, size = np.float32(how.rate), np.float32(how.proximal), federation.parameters

    def steps(client: Client) -> int:
        return client.steps(how.steps, how.epochs)

    def train(number: int, client: Client, start: Vector) -> Vector:
        def descend(theta: Vector, gradient: Vector) -> None:
            drawn = gradient + mu * (theta - start[:size]) if how.proximal else gradient
            theta -= rate * drawn

        return client.descend(start, steps(client), descend)

    return rounds(federation, how.cohort, steps, train, move)
