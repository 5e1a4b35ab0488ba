"""Completion times: equation 2 against Monte Carlo and by hand, the bound below everything, coded schemes."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeflock.papers.scheduling.completion import (
    SCENARIOS,
    ShiftedExponential,
    average_completion,
    coded_multi_message,
    completion,
    lower_bound,
    polynomially_coded,
    random_completion,
)
from edgeflock.papers.scheduling.matrices import Matrix, cyclic, staircase

MATRICES: dict[str, Callable[[int, int], Matrix]] = {
    "cyclic": cyclic,
    "staircase": staircase,
    "random": lambda n, r: np.random.default_rng(7).permuted(np.tile(np.arange(n), (n, 1)), axis=1)[:, :r].T,
}


def workers(seed: int, n: int) -> ShiftedExponential:
    random = np.random.default_rng(seed)
    return ShiftedExponential(random.uniform(0.2, 2, n), random.uniform(0, 1, n))


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize(("n", "r", "k"), [(4, 2, 3), (5, 5, 5), (6, 3, 2), (6, 1, 6), (7, 4, 6)])
def test_equation_2_is_the_mean_of_many_rounds(name: str, n: int, r: int, k: int) -> None:
    matrix = MATRICES[name](n, r)
    delays = workers(n, n)
    seen = completion(matrix, delays.draw(60_000, np.random.default_rng(1)), k)
    exact = average_completion(matrix, delays, k)
    if np.isinf(seen).any():
        assert exact == np.inf
    else:
        assert abs(seen.mean() - exact) < 5 * seen.std() / 60_000**0.5


def test_equation_2_of_one_worker_is_by_hand() -> None:
    delays = ShiftedExponential(np.array([2.0, 0.5]), np.array([0.25, 1.0]))
    # k = 1 of CS, r = 1: the first of both. One is until .25, then falls with 2, from 1 on with 2.5.
    first = 0.25 + (1 - np.exp(-1.5)) / 2 + np.exp(-1.5) / 2.5
    assert average_completion(cyclic(2, 1), delays, 1) == pytest.approx(first)
    # The last of both: E max = E a + E b - E min.
    assert average_completion(cyclic(2, 1), delays, 2) == pytest.approx(0.75 + 3.0 - first)


def test_a_target_that_nobody_can_reach_is_never_there() -> None:
    alone = np.zeros((1, 3), np.int64)  # all compute task 0
    assert average_completion(alone, workers(0, 3), 1) < np.inf
    assert average_completion(alone, workers(0, 3), 2) == np.inf


@given(st.integers(0, 10_000), st.integers(2, 8), st.data())
@settings(max_examples=50)
def test_nothing_is_faster_than_the_bound(seed: int, n: int, data: st.DataObject) -> None:
    r, k = data.draw(st.integers(1, n)), data.draw(st.integers(1, n))
    random = np.random.default_rng(seed)
    times = workers(seed, n).draw(200, random)
    bound = lower_bound(times, r, k)
    for make in MATRICES.values():
        assert (bound <= completion(make(n, r), times, k)).all()
    assert (bound <= random_completion(times, r, k, random)).all()


def test_the_bound_is_algorithm_1() -> None:
    times = workers(3, 6).draw(50, np.random.default_rng(3))
    for r, k in ((1, 6), (2, 5), (6, 6), (4, 1)):
        for paces, bound in zip(times, lower_bound(times, r, k), strict=True):
            counts = np.zeros(6)
            for _ in range(k):  # lines 4 to 10
                after = np.where(counts < r, (counts + 1) * paces, np.inf)
                counts[after.argmin()] += 1
            assert bound == (counts * paces).max()


def test_without_redundancy_all_orders_are_one() -> None:
    times = workers(5, 6).draw(100, np.random.default_rng(5))
    for k in (1, 4, 6):
        bound = lower_bound(times, 1, k)
        assert (completion(cyclic(6, 1), times, k) == bound).all()
        assert (completion(staircase(6, 1), times, k) == bound).all()


def test_more_of_anything_does_not_take_longer() -> None:
    delays = workers(6, 6)
    for make in (cyclic, staircase):
        by_load = [average_completion(make(6, r), delays, 6) for r in range(1, 7)]
        by_target = [average_completion(make(6, 3), delays, k) for k in range(1, 7)]
        assert all(np.diff(by_load) <= 1e-9)
        assert all(np.diff(by_target) >= -1e-9)


def test_coded_schemes_take_as_many_results_as_their_papers_say() -> None:
    times = np.array([[1.0, 2.0, 3.0, 10.0]])
    # PC, r = 2: 2 * 2 - 1 = 3 workers, each twice its time; r = 4: one worker.
    assert polynomially_coded(times, 2).tolist() == [6.0]
    assert polynomially_coded(times, 4).tolist() == [4.0]
    # PCMM: 2 * 4 - 1 = 7 results of 1 2, 2 4, 3 6, 10 20.
    assert coded_multi_message(times, 2).tolist() == [10.0]


def test_the_scenarios_are_the_papers() -> None:
    for scenario, (mu, tau) in zip(SCENARIOS, ((0.1, 1.0), (0.8, 0.1)), strict=True):
        delays = scenario.draw(np.random.default_rng(0))
        assert len(delays.mu) == 10
        assert (0 < delays.mu).all()
        assert (delays.mu < mu).all()
        assert (delays.tau < tau).all()
        times = delays.draw(50_000, np.random.default_rng(0))
        assert (times >= delays.tau).all()
        assert np.allclose(times.mean(0), delays.tau + 1 / delays.mu, rtol=0.05)
