"""Actions by logits and by means, and their probabilities."""

import numpy as np
import pytest

from edgeflock.shared.environments import opening as actions
from edgeflock.shared.errors import ConfigError

VALUE = np.array([[7.0]], np.float32)


def test_classes_are_drawn_as_often_as_their_probabilities_say() -> None:
    logits = np.log(np.array([[0.2, 0.5, 0.3]], np.float32)).repeat(20_000, axis=0)
    chosen, logs, values = actions.draw((logits, VALUE.repeat(20_000, axis=0)), np.random.default_rng(0))
    shares = np.bincount(chosen[:, 0].astype(int)) / len(chosen)
    np.testing.assert_allclose(shares, [0.2, 0.5, 0.3], atol=0.02)
    np.testing.assert_allclose(np.exp(logs), np.array([0.2, 0.5, 0.3])[chosen[:, 0].astype(int)], rtol=1e-5)
    assert values.shape == (20_000,)


def test_numbers_are_drawn_from_a_normal_distribution() -> None:
    mean, log_deviation = np.full((20_000, 2), 3, np.float32), np.full((20_000, 2), np.log(2), np.float32)
    chosen, logs, _ = actions.draw(
        (mean, log_deviation, VALUE.repeat(20_000, axis=0)), np.random.default_rng(0)
    )
    np.testing.assert_allclose(chosen.mean(0), 3, atol=0.05)
    np.testing.assert_allclose(chosen.std(0), 2, atol=0.05)
    wanted = (-((chosen - 3) ** 2) / 8 - np.log(2 * np.sqrt(2 * np.pi))).sum(1)
    np.testing.assert_allclose(logs, wanted, rtol=1e-4, atol=1e-5)


def test_greedy_takes_the_likeliest() -> None:
    random = np.random.default_rng(0)
    chosen, _, _ = actions.draw((np.array([[0.0, 1.0, 0.9]], np.float32), VALUE), random, greedy=True)
    assert chosen.tolist() == [[1.0]]
    mean = np.array([[0.25]], np.float32)
    chosen, _, _ = actions.draw((mean, np.zeros_like(mean), VALUE), random, greedy=True)
    assert chosen.tolist() == [[0.25]]


@pytest.mark.parametrize(
    ("shapes", "discrete", "says"),
    [
        ([(2,), ()], True, ""),
        ([(2,), (1,)], True, ""),
        ([(2,), (2,), (1,)], False, ""),
        ([(3,), ()], True, r"\(logits \[n, 2\], value \[n\]\), and model.module returns 2 tensors"),
        ([(2,)], True, "returns 1 tensors"),
        ([(2,), (2,)], True, "logits"),
        ([(2,), ()], False, r"\(mean \[n, 2\], log deviation \[n, 2\], value \[n\]\)"),
    ],
)
def test_what_a_policy_returns_must_fit(shapes: list[tuple[int, ...]], discrete: bool, says: str) -> None:
    outputs = tuple(np.zeros((4, *shape), np.float32) for shape in shapes)
    if not says:
        actions.check(outputs, 2, discrete=discrete)
        return
    with pytest.raises(ConfigError, match=says):
        actions.check(outputs, 2, discrete=discrete)
