"""Completion times of a round: of a task-order matrix, of coded schemes, and the lower bound.

In the paper's model a worker takes the same T_i for each of its tasks of a round, one after another, and a
result is there at once.
"""

from dataclasses import dataclass
from itertools import combinations
from math import ceil, comb

import numpy as np
from numpy.typing import NDArray

from edgeflock.papers.scheduling.matrices import Matrix, positions

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


_BLOCK = 4096
"""Rounds that are looked at together: bounds the memory."""


def completion(matrix: Matrix, times: Times, k: int) -> NDArray[np.float64]:
    """Return T_C(r, k) of each round: [rounds].

    T_Xj is min_i of (position of j at worker i) T_i, and infinity for a task that no worker has.
    """
    order = positions(matrix)
    blocks = [
        (times[first : first + _BLOCK, None, :] * order).min(axis=2) for first in range(0, len(times), _BLOCK)
    ]
    return np.partition(np.concatenate(blocks), k - 1, axis=1)[:, k - 1]


def average_completion(matrix: Matrix, delays: ShiftedExponential, k: int) -> float:
    """Return the exact mean of T_C(r, k) by equation 2, infinity if the matrix has fewer than k tasks.

    No task of a set S has a result by t if no worker i has reached its first task of S, at position p_i. The
    workers are independent, each with probability Pr{T_i > t / p_i}. For shifted exponentials, the logarithm
    of their product is linear between the points p_i tau_i. Its integral is therefore a sum over n + 1
    pieces.
    """
    order = positions(matrix)
    n = len(order)
    if np.isfinite(order).any(axis=1).sum() < k:
        return float("inf")
    mean = 0.0
    for size in range(n - k + 1, n + 1):
        sets = np.array(list(combinations(range(n), size)))
        sign = (-1) ** (n - k + size + 1)
        mean += sign * comb(size - 1, n - k) * _integrals(order[sets].min(axis=1), delays).sum()
    return float(mean)


def _integrals(first: NDArray[np.float64], delays: ShiftedExponential) -> NDArray[np.float64]:
    """Of each row p of `first` [sets, n] the integral over t > 0 of prod_i Pr{T_i > t / p_i}: [sets].

    A worker that has nothing of a set (p_i infinite) says nothing of it.
    """
    starts = np.where(np.isfinite(first), first * delays.tau, np.inf)
    by_start = np.argsort(starts, axis=1)
    start = np.take_along_axis(starts, by_start, axis=1)
    rate = np.take_along_axis(delays.mu / first, by_start, axis=1)  # 0 where p_i is infinite
    total = np.cumsum(rate, axis=1)
    ends = np.concatenate([start[:, 1:], np.full((len(start), 1), np.inf)], axis=1)
    area, logarithm = start[:, 0].copy(), np.zeros(len(start))  # before the first start all is 1
    for piece in range(start.shape[1]):
        begin, end, slope = start[:, piece], ends[:, piece], total[:, piece]
        with np.errstate(invalid="ignore"):
            length = np.where(np.isfinite(begin), end - begin, 0.0)
        fall = -np.expm1(-slope * length)
        area += np.exp(logarithm) * fall / slope
        logarithm = logarithm - np.where(np.isfinite(length), slope * length, 0.0)
    return area


def lower_bound(times: Times, r: int, k: int) -> NDArray[np.float64]:
    """T_LB(T, r, k) of each round by Algorithm 1: [rounds]. No scheme without coding is faster.

    Taking k times the worker whose next result comes first is taking the k smallest of i T_j, i = 1 .. r.
    """
    results = (times[:, :, None] * np.arange(1, r + 1)).reshape(len(times), -1)
    return np.partition(results, k - 1, axis=1)[:, k - 1]


def random_completion(times: Times, r: int, k: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return T_C(r, k) of RA, with a new random matrix each round: [rounds], or infinity below k tasks."""
    rounds, n = times.shape
    blocks = []
    for first in range(0, rounds, _BLOCK):
        block = times[first : first + _BLOCK]
        order = random.permuted(np.broadcast_to(np.arange(1.0, n + 1), (len(block), n, n)), axis=2)
        order[order > r] = np.inf
        blocks.append((order * block[:, :, None]).min(axis=1))
    return np.partition(np.concatenate(blocks), k - 1, axis=1)[:, k - 1]


def polynomially_coded(times: Times, r: int) -> NDArray[np.float64]:
    """Return the times of PC (Li et al., arXiv 1805.09934), k = n. Needs r >= 2.

    A worker sends one result of r coded points. 2 ceil(n / r) - 1 workers' results are enough.
    """
    needed = 2 * ceil(times.shape[1] / r) - 1
    return np.partition(r * times, needed - 1, axis=1)[:, needed - 1]


def coded_multi_message(times: Times, r: int) -> NDArray[np.float64]:
    """Return the times of PCMM (Ozfatura, Gündüz, Ulukus, arXiv 1808.02240), k = n. Needs r >= 2.

    Each of the r results is sent at once, and any 2 n - 1 of them are enough.
    """
    return lower_bound(times, r, 2 * times.shape[1] - 1)
