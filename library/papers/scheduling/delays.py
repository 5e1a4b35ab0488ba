"""The time that a worker takes for each of its tasks of a round."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
"""[rounds, n]: T_i of each worker in each round."""


@dataclass(frozen=True, slots=True)
class ShiftedExponential:
    """Equation 9: F_i(t) = 1 - exp(-mu_i (t - tau_i)) from tau_i on, independently of each other."""

    mu: NDArray[np.float64]
    """[n], above 0."""
    tau: NDArray[np.float64]
    """[n], from 0 on."""

    def draw(self, rounds: int, random: np.random.Generator) -> Times:
        return self.tau + random.exponential(1 / self.mu, (rounds, len(self.mu)))


@dataclass(frozen=True, slots=True)
class Scenario:
    """The ranges of the paper's worker parameters: (0, mu) and (0, tau), uniformly."""

    name: str
    mu: float
    tau: float
    n: int = 10

    def draw(self, random: np.random.Generator) -> ShiftedExponential:
        return ShiftedExponential(random.uniform(0, self.mu, self.n), random.uniform(0, self.tau, self.n))


SCENARIOS = (Scenario("scenario 1", 0.1, 1.0), Scenario("scenario 2", 0.8, 0.1))
