"""Advantages against the sums that define them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.shared.environments.rollouts import advantages


@given(st.integers(1, 6), st.integers(1, 3), st.floats(0, 1), st.floats(0, 1), st.integers(0, 9))
def test_they_are_the_discounted_sum_of_errors(
    steps: int, envs: int, discount: float, smoothing: float, seed: int
) -> None:
    """Equation 16 of the paper, summed forwards until the episode ends."""
    random = np.random.default_rng(seed)
    rewards, values = random.standard_normal((2, steps, envs)).astype(np.float32)
    last, ended = random.standard_normal(envs).astype(np.float32), random.random((steps, envs)) < 0.3
    found, returns = advantages(rewards, values, ended, last, discount, smoothing)
    following = np.vstack([values[1:], last])
    for env in range(envs):
        for begin in range(steps):
            total, weight = 0.0, 1.0
            for t in range(begin, steps):
                value = 0.0 if ended[t, env] else discount * following[t, env]
                total += weight * (rewards[t, env] + value - values[t, env])
                if ended[t, env]:
                    break
                weight *= discount * smoothing
            assert found[begin, env] == pytest.approx(total, abs=1e-4)
    np.testing.assert_allclose(returns, found + values, rtol=1e-6, atol=1e-6)


def test_with_a_smoothing_of_1_returns_are_discounted_rewards() -> None:
    rewards = np.array([[1.0], [2.0], [4.0]], np.float32)
    values = np.array([[9.0], [-3.0], [5.0]], np.float32)
    ended = np.array([[False], [False], [True]])
    _, returns = advantages(rewards, values, ended, np.array([100.0], np.float32), 0.5, 1.0)
    np.testing.assert_allclose(returns.ravel(), [3.0, 4.0, 4.0])
