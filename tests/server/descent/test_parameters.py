"""The whole server against Algorithm 2 over Python sets, bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.step import Index, Step
from edgeflock.server.descent.weighting import RULES
from tests.server.descent.reference import SlowServer

every_rule = pytest.mark.parametrize("rule", RULES)
numbers = st.floats(-1000, 1000, width=32)


def both(theta: NDArray[np.float32], regime: Regime) -> tuple[Parameters, SlowServer]:
    parameters = Parameters(0, theta.copy(), regime=regime, start=0)
    return parameters, SlowServer(theta, regime)


def under(regime: Regime, before: Parameters, start: int, recent: list[Step]) -> Parameters:
    """`before`, counting by `regime` from here on."""
    return Parameters(before.version, before.theta, before.average, regime=regime, start=start, recent=recent)


def push(
    parameters: Parameters, slow: SlowServer, base: int, where: Index, delta: NDArray[np.float32]
) -> Step:
    step = Step(base, where, delta)
    slow.apply(base, np.arange(len(slow.theta))[where].tolist(), list(delta))
    parameters.apply(step)
    return step


@every_rule
@given(data=st.data())
def test_random_interleavings(rule: str, data: st.DataObject) -> None:
    """Sparse and dense updates, zeros among them, from any admissible base."""
    size = data.draw(st.integers(1, 5), "size")
    theta = np.array(data.draw(st.lists(numbers, min_size=size, max_size=size)), np.float32)
    rate = data.draw(st.floats(0.001, 2), "learning rate")
    parameters, slow = both(theta, Regime(rule, rate, data.draw(st.integers(2, 12), "window")))
    for _ in range(data.draw(st.integers(0, 25), "updates")):
        base = data.draw(st.sampled_from(slow.bases))
        chosen = data.draw(st.none() | st.sets(st.integers(0, size - 1)))
        count = size if chosen is None else len(chosen)
        delta = np.array(data.draw(st.lists(numbers, min_size=count, max_size=count)), np.float32)
        where = slice(None) if chosen is None else np.array(sorted(chosen), np.int64)
        push(parameters, slow, base, where, delta)
        slow.assert_equals(parameters)


@every_rule
@pytest.mark.parametrize("window", [2, 9, 256, 257])
def test_a_long_run(rule: str, window: int) -> None:
    random = np.random.default_rng(window)
    parameters, slow = both(random.standard_normal(12).astype(np.float32), Regime(rule, 0.1, window))
    for number in range(window + 60):
        lag = int(random.integers(0, min(window, number + 1)))
        where = np.flatnonzero(random.random(12) < 0.3)
        push(parameters, slow, number - lag, where, random.standard_normal(where.size).astype(np.float32))
    slow.assert_equals(parameters)


@every_rule
def test_a_run_whose_regime_changes(rule: str) -> None:
    """After each change everything counts as if the new regime had watched from the beginning."""
    random = np.random.default_rng(3)
    parameters, slow = both(random.standard_normal(7).astype(np.float32), Regime("none", 0.5, 4))
    steps: list[Step] = []
    for regime in (Regime(rule, 0.1, 4), Regime("adacomp", 0.3, 20), Regime(rule, 0.2, 3), slow.regime):
        slow.regime = regime
        start = max(0, parameters.version - regime.window)
        parameters = under(regime, parameters, start, steps[start:])
        slow.assert_equals(parameters)
        for _ in range(9):
            base = int(random.choice(slow.bases))
            where = np.flatnonzero(random.random(7) < 0.5)
            delta = random.standard_normal(where.size).astype(np.float32)
            steps.append(push(parameters, slow, base, where, delta))
            slow.assert_equals(parameters)


@every_rule
def test_a_past_that_is_not_known_is_not_admitted(rule: str) -> None:
    """Taken up at a version whose past is known from 3 on: bases 3 and later count exactly."""
    random = np.random.default_rng(8)
    parameters, slow = both(random.standard_normal(5).astype(np.float32), Regime(rule, 0.1, 20))
    steps = []
    for _ in range(7):
        delta = random.standard_normal(2).astype(np.float32)
        steps.append(push(parameters, slow, int(random.choice(slow.bases)), np.array([1, 4]), delta))
    slow.start = 3
    parameters = under(slow.regime, parameters, 3, steps[3:])
    for _ in range(30):
        slow.assert_equals(parameters)
        where = np.flatnonzero(random.random(5) < 0.5)
        delta = random.standard_normal(where.size).astype(np.float32)
        push(parameters, slow, slow.bases[0], where, delta)


def test_equation_five_by_hand() -> None:
    """Two devices pull version 0; the second one's shared parameter counts by how often it was changed."""
    parameters, _ = both(np.zeros(3, np.float32), Regime("adacomp", 1.0, 8))
    first, second = np.array([0, 1]), np.array([1, 2])
    for _ in range(3):
        parameters.apply(Step(0, first, np.array([0, 1], np.float32)))
    # Parameter 1: 1 from sigma 0, 1 from sigma 1, 1/2 from sigma 2, then 1/3; parameter 2: all of it.
    parameters.apply(Step(0, second, np.ones(2, np.float32)))
    expected = np.float32(np.float32(-2.5) - np.float32(1) / np.float32(3))
    assert parameters.theta.tolist() == [0, expected, -1]
    assert parameters.version == 4


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    ("rule", "expected"), [("adacomp", 5 / 4 + 1 / 6), ("tau", 5 / 4 + 1 / 8), ("none", 5 / 4 + 1 / 4)]
)
def test_an_update_of_nodes_that_train_alone_counts_as_in_their_mean(
    rule: str, expected: float, dense: bool
) -> None:
    """Four nodes: fresh updates count a quarter. One that six others came before: a sixth by the staleness of
    its parameters, by its own, of two turns, an eighth. Shared from version 1 on, whose update was whole."""
    where = slice(None) if dense else np.array([1])
    delta = -np.ones(2 if dense else 1, np.float32)
    parameters = Parameters(0, np.zeros(2, np.float32), regime=Regime(rule, 1.0, 16), start=0)
    parameters.apply(Step(0, where, delta))
    parameters.set_node_count(4)
    for version in range(1, 6):
        parameters.apply(Step(version, where, delta))
    step = Step(0, where, delta)
    before = parameters.theta[1]
    assert parameters.fits(step, float(before) + 0.3)
    assert not parameters.fits(step, float(before) + 0.1)
    parameters.apply(step)
    assert parameters.theta[1] == pytest.approx(1 + expected)


@pytest.mark.parametrize("rule", ["adacomp", "tau", "none"])
def test_a_base_batch_scales_the_step_whatever_the_rule(rule: str) -> None:
    regimes = Regime(rule, 0.25, 8), Regime(rule, 0.25, 8, base_batch=64)
    plain, scaled = (Parameters(0, np.zeros(3, np.float32), regime=one, start=0) for one in regimes)
    for base in (0, 0, 1):
        step = Step(base, np.array([0, 2]), np.array([1, -2], np.float32), samples=16)
        plain.apply(step)
        scaled.apply(step)
    np.testing.assert_array_equal(scaled.theta, plain.theta / 4)
