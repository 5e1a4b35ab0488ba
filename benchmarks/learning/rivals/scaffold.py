"""SCAFFOLD: local steps corrected by control variates."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from benchmarks.learning.rivals.channel import Vector
from benchmarks.learning.rivals.federation import Federation


@dataclass(frozen=True, slots=True)
class Scaffold:
    """SCAFFOLD: SGD with control variates.

    Client i, K times: y <- y - rate (g(y) - c_i + c). Then c_i' = c_i - c + (x - y) / (K rate). The server:
    x <- x + server_rate mean (y - x), c <- c + (|S| / N) mean (c_i' - c_i).
    S. P. Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020,
    algorithm 1, option II. Model and variate travel both ways. Running statistics are averaged.
    """

    rate: float
    epochs: int = 1
    steps: int = 0
    cohort: int = 10
    server_rate: float = 1.0
    values: ClassVar[str] = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield x after each round."""
        clients, channel, size = federation.clients, federation.channel, federation.parameters
        x, version, rate = federation.theta.copy(), 0, np.float32(self.rate)
        c = np.zeros_like(x)  # its statistics stay 0
        own = [np.zeros(size, np.float32) for _ in clients]
        while True:
            present = federation.present
            cohort = min(self.cohort, len(present))
            chosen = federation.random.choice(present, cohort, replace=False).tolist()
            changes, variates, slowest = np.zeros_like(x), np.zeros_like(x), 0.0
            for number in chosen:
                client = clients[number]
                start, shared = channel.down(number, version, x), channel.down(number, version, c)[:size]
                count = client.steps(self.steps, self.epochs)
                correction = shared - own[number]

                def move(y: Vector, gradient: Vector, correction: Vector = correction) -> None:
                    y -= rate * (gradient + correction)

                end = client.descend(start, count, move)
                reported = client.reported(count)
                changes += channel.up(version, end - start, *reported)
                variate = np.zeros_like(x)
                variate[:size] = (start - end)[:size] / np.float32(count * self.rate) - shared
                variates += channel.up(version, variate, *reported)
                own[number] = own[number] + variate[:size]
                slowest = max(slowest, client.seconds(count))
                federation.draw_crash(number, count)
            x[:size] += np.float32(self.server_rate / cohort) * changes[:size]
            x[size:] += changes[size:] / np.float32(cohort)
            c += variates / np.float32(len(clients))
            federation.seconds += slowest
            version += 1
            yield x.copy()
