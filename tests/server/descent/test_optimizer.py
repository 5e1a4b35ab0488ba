"""The step: theta_k <- theta_k - alpha_k delta_k, AdaComp's equation (4), one rounding an operation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.server.descent import Index, OptimizerMemory, Part, Regime, VectorState

SIZE = 6

numbers = st.floats(-(2.0**40), 2.0**40, width=32)
rates = st.floats(2.0**-16, 4, width=32).map(np.float32)
vectors = st.lists(numbers, min_size=SIZE, max_size=SIZE).map(lambda drawn: np.array(drawn, np.float32))
chosen_sets = st.sets(st.integers(0, SIZE - 1))


def part_of(theta: NDArray[np.float32], rule: str = "adacomp", window: int = 256) -> Part:
    """All of theta, which is changed in place."""
    return Part(VectorState(theta, None, OptimizerMemory(), 0, Regime(rule, 1.0, window), 0))


def descend(part: Part, where: Index, delta: NDArray[np.float32], rate: np.float32, base: int = 0) -> None:
    """theta_k <- theta_k - rate / max(1, sigma_k) delta_k."""
    part.descend(where, delta, base, rate, 1)


def formula(theta: np.float32, rate: np.float32, divisor: int, delta: np.float32) -> np.float32:
    """theta - rate / divisor * delta, each operation in double precision and then rounded to float32.

    Double precision holds twice the digits and more, so that this is the float32 operation.
    """
    alpha = np.float32(float(rate) / divisor)
    change = np.float32(float(alpha) * float(delta))
    return np.float32(float(theta) - float(change))


@given(theta=vectors, delta=vectors, rate=rates, chosen=chosen_sets)
def test_one_rate_for_all(
    theta: NDArray[np.float32], delta: NDArray[np.float32], rate: np.float32, chosen: set[int]
) -> None:
    """Dense, and sparse with the rest untouched."""
    sparse: Index = np.array(sorted(chosen), np.int64)
    for where in (sparse, slice(None)):
        expected, taken = theta.copy(), theta.copy()
        for k in np.arange(SIZE)[where]:
            expected[k] = formula(theta[k], rate, 1, delta[k])
        descend(part_of(taken, "none"), where, delta[where], rate)
        assert taken.tobytes() == expected.tobytes()


@pytest.mark.parametrize("window", [256, 300])
@given(
    theta=vectors,
    delta=vectors,
    rate=rates,
    chosen=chosen_sets,
    touches=st.lists(st.integers(0, 40), min_size=SIZE, max_size=SIZE),
)
def test_each_parameter_by_its_own_staleness(
    window: int,
    theta: NDArray[np.float32],
    delta: NDArray[np.float32],
    rate: np.float32,
    chosen: set[int],
    touches: list[int],
) -> None:
    """Parameter k was changed touches[k] times since the base: alpha_k = rate / max(1, touches[k])."""
    sparse: Index = np.array(sorted(chosen), np.int64)
    for where in (sparse, slice(None)):
        expected, taken = theta.copy(), theta.copy()
        part = part_of(taken, window=window)
        for version in range(40):
            changed = np.array([k for k in range(SIZE) if touches[k] > version], np.int64)
            part.touch(changed, np.ones(changed.size, np.float32))
        for k in np.arange(SIZE)[where]:
            expected[k] = formula(theta[k], rate, max(1, touches[k]), delta[k])
        descend(part, where, delta[where], rate)
        assert taken.tobytes() == expected.tobytes()
        # It recorded itself as the next version's update, but for zeros.
        staleness = part.staleness
        assert staleness is not None
        assert staleness.version == 41
        here = set(np.arange(SIZE)[where].tolist())
        assert staleness.sigma(slice(None), 40).tolist() == [k in here and delta[k] != 0 for k in range(SIZE)]


@pytest.mark.slow
@pytest.mark.parametrize("where", [slice(None), np.array([0, 1])], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("window", "updates"), [(2, 600), (9, 600), (256, 1100), (257, 1100), (65536, 66000)]
)
def test_counters_that_turn_over(window: int, updates: int, where: Index) -> None:
    """A parameter that every update changes, while its counter passes 256 or 65536: sigma is the delay."""
    theta = np.zeros(2, np.float32)
    part = part_of(theta, window=window)
    delta, rate = np.ones(2, np.float32), np.float32(1)
    for version in range(updates):
        delay = min(version, version * 37 % window)
        theta[:] = 0
        descend(part, where, delta, rate, version - delay)
        assert theta[0] == theta[1] == -np.float32(1 / max(1, delay))


@pytest.mark.parametrize("where", [slice(None), np.arange(1000)], ids=["dense", "sparse"])
def test_no_fused_operations(where: Index) -> None:
    """A fused multiply-add would round once where these inputs tell that from rounding twice."""
    theta, delta = np.random.default_rng(0).standard_normal((2, 1000)).astype(np.float32)
    rate = np.float32(0.1)
    expected = [float(formula(theta[k], rate, 1, delta[k])) for k in range(1000)]
    fused = [float(np.float32(float(theta[k]) - float(rate) * float(delta[k]))) for k in range(1000)]
    assert expected != fused
    plain, weighted = theta.copy(), theta.copy()
    descend(part_of(plain, "none"), where, delta, rate)
    descend(part_of(weighted), where, delta, rate)
    assert plain.tolist() == expected
    assert weighted.tolist() == expected


def test_it_works_in_place_and_on_a_slice_of_theta() -> None:
    theta = np.ones(6, np.float32)
    descend(part_of(theta[:2], "none"), slice(None), np.ones(2, np.float32), np.float32(0.5))
    descend(part_of(theta[2:4], "none"), np.array([1]), np.ones(1, np.float32), np.float32(0.5))
    descend(part_of(theta[4:]), np.array([0]), np.ones(1, np.float32), np.float32(0.25))
    assert theta.tolist() == [0.5, 0.5, 1, 0.5, 0.75, 1]


@pytest.mark.parametrize("where", [slice(None), np.array([0, 1])], ids=["dense", "sparse"])
@pytest.mark.parametrize("base", [-1, 1])
def test_a_base_outside_the_window_changes_nothing(where: Index, base: int) -> None:
    theta = np.ones(2, np.float32)
    part = part_of(theta)
    with pytest.raises(ValueError, match=f"base {base} is outside 0..0"):
        descend(part, where, np.ones(2, np.float32), np.float32(1), base)
    assert theta.tolist() == [1, 1]
    assert part.staleness is not None
    assert part.staleness.version == 0
