"""The noise of private steps: its size, its independence, and what it does not depend on."""

from dataclasses import replace
from math import log2

import numpy as np
import pytest

from edgeflock.server.descent import Step, StepMethod
from edgeflock.server.descent.noise import TreeNoise, bound_norm

METHOD = StepMethod(bound=2.0, noise=0.5, tree=8, noise_key="ab" * 32)
SIZE = 40_000
NOTHING = np.zeros(SIZE, np.float32)


def prefix_noises(noise: TreeNoise, steps: int) -> list[np.ndarray]:
    """N(1), ..., N(steps), of sums that are zero."""
    return list(np.cumsum([noise.add(NOTHING, step + 1) for step in range(steps)], axis=0))


def test_independent_steps_have_the_announced_deviation() -> None:
    noise = TreeNoise(replace(METHOD, tree=1), SIZE, 0)
    one, two = noise.add(NOTHING, 1), noise.add(NOTHING, 2)
    assert np.std(one) == pytest.approx(1.0, rel=0.02)  # noise 0.5 * bound 2
    assert np.std(two) == pytest.approx(1.0, rel=0.02)
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.03


def test_prefix_sums_have_honakers_variance() -> None:
    """Subtrees of 1, 2, 4 and 8 steps: variances 1, 2/3, 4/7 and 8/15 of a node's (2 v / (1 + 2 v))."""
    expected = [1, 2 / 3, 5 / 3, 4 / 7, 11 / 7, 4 / 7 + 2 / 3, 4 / 7 + 5 / 3, 8 / 15]
    found = [np.var(one) for one in prefix_noises(TreeNoise(METHOD, SIZE, 0), 8)]
    assert found == pytest.approx(expected, rel=0.05)
    assert max(found) <= log2(8) < 8  # independent noise of the same nodes would have variance 8


def test_trees_are_independent() -> None:
    noise = TreeNoise(METHOD, SIZE, 0)
    sums = prefix_noises(noise, 16)
    assert abs(np.corrcoef(sums[7], sums[15] - sums[7])[0, 1]) < 0.03
    assert np.var(sums[15]) == pytest.approx(16 / 15, rel=0.05)


def test_the_noise_follows_from_the_key_and_the_history_alone() -> None:
    sums = [np.full(SIZE, step, np.float32) for step in range(4)]
    one, same = TreeNoise(METHOD, SIZE, 0), TreeNoise(METHOD, SIZE, 0)
    stranger = TreeNoise(replace(METHOD, noise_key="cd" * 32), SIZE, 0)
    for step, total in enumerate(sums, 1):
        first = one.add(total, step)
        np.testing.assert_array_equal(first, same.add(total, step))
        assert abs(np.corrcoef(first - total, stranger.add(total, step) - total)[0, 1]) < 0.03


def test_another_history_gets_other_noise() -> None:
    """After a restored backup the noise of a step is not subtracted by comparing both runs."""
    one, other = TreeNoise(METHOD, SIZE, 0), TreeNoise(METHOD, SIZE, 0)
    shifted = NOTHING.copy()
    shifted[0] = 1e-3
    assert abs(np.corrcoef(one.add(NOTHING, 1)[1:], other.add(shifted, 1)[1:])[0, 1]) < 0.03


def test_a_tree_goes_on_after_a_restart() -> None:
    whole = TreeNoise(METHOD, SIZE, 0)
    expected = [whole.add(NOTHING, step) for step in range(1, 7)]
    noise = TreeNoise(METHOD, SIZE, 0)
    for step in range(1, 7):
        np.testing.assert_array_equal(noise.add(NOTHING, step), expected[step - 1])
        noise = TreeNoise(METHOD, SIZE, 0, noise.pack())


def test_a_broken_state_is_refused() -> None:
    with pytest.raises(ValueError, match="the state of the noise cannot be read"):
        TreeNoise(METHOD, SIZE, 0, b"\x93")


def test_norms_are_bounded_and_samples_do_not_count() -> None:
    step = Step(0, slice(None), np.array([3.0, 4.0], np.float32), samples=1000)
    bounded = bound_norm(step, 2.0)
    assert bounded.samples == 1
    assert 2 * (1 - 1e-5) < np.linalg.norm(bounded.delta) <= 2
    np.testing.assert_array_equal(bound_norm(step, 6.0).delta, step.delta)
    huge = bound_norm(replace(step, delta=np.array([3e38, 3e38], np.float32)), 2.0)
    assert np.linalg.norm(huge.delta) <= 2.0
