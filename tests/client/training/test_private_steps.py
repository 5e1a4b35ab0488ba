"""DP-SGD on a device: each example is clipped alone, in a Poisson sample, and every entry gets noise."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client.data import Batches, Shuffled
from edgeflock.client.training.private_steps import PrivateSteps
from edgeflock.shared.data.samples import Dataset
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Inputs
from edgeflock.shared.model.gradient import Gradient
from tests.client.training.fakes import WELCOME

SIZE = 20_000
TERMS = replace(WELCOME, batch=10, clip=0.5, noise=2.0, examples=40, private=True)
THETA = np.zeros(SIZE, np.float32)


def compute(theta: NDArray[np.float32], x: Inputs, y: NDArray[np.generic]) -> Gradient:
    """Example k has the gradient x_k at entry k, and nothing else."""
    assert len(y) == 1
    gradient = np.zeros(SIZE, np.float32)
    gradient[int(y[0])] = np.asarray(x)[0, 0]
    return Gradient(1.0, gradient, np.zeros(0, np.float32), None)


def batches(count: int, size: float = 1e6) -> Shuffled:
    x = np.full((count, 1), size, np.float32)
    return Shuffled(Dataset(x, np.arange(count)), np.random.default_rng(0))


def test_examples_are_clipped_one_by_one() -> None:
    """A batch of ten examples with enormous gradients moves each of ten entries by clip / batch."""
    quiet = replace(TERMS, noise=1e-6, batch=40)
    step = PrivateSteps(quiet, batches(40)).take(THETA, compute)
    np.testing.assert_allclose(step.gradient[:40], 0.5 / 40, rtol=1e-3)  # batch / 40 examples: all of them
    assert step.samples == 40


def test_small_gradients_stay_as_they_are() -> None:
    quiet = replace(TERMS, noise=1e-6, batch=40)
    step = PrivateSteps(quiet, batches(40, size=0.1)).take(THETA, compute)
    np.testing.assert_allclose(step.gradient[:40], 0.1 / 40, rtol=1e-3)


def test_noise_has_the_announced_deviation_on_every_entry() -> None:
    one = PrivateSteps(TERMS, batches(40)).take(THETA, compute).gradient
    two = PrivateSteps(TERMS, batches(40)).take(THETA, compute).gradient
    assert np.std(one[40:]) == pytest.approx(2.0 * 0.5 / 10, rel=0.03)
    assert abs(np.corrcoef(one[40:], two[40:])[0, 1]) < 0.03  # no seed of the run makes it
    assert (one != 0).all()


def test_batches_are_poisson_samples() -> None:
    drawn = [len(batches(400).sample(10, 40)[1]) for _ in range(400)]
    assert np.mean(drawn) == pytest.approx(10, abs=0.6)
    assert np.var(drawn) == pytest.approx(10 * (1 - 10 / 400), rel=0.3)


def test_a_device_with_too_few_examples_does_not_train() -> None:
    with pytest.raises(ConfigError, match=r"39 examples, and the run hides one among 40 or more"):
        PrivateSteps(TERMS, batches(39)).take(THETA, compute)


def test_data_that_cannot_be_sampled_are_refused() -> None:
    class Stream(Batches):
        pass

    with pytest.raises(ConfigError, match="use stored data"):
        PrivateSteps(TERMS, Stream())  # type: ignore[abstract]


def test_broken_examples_do_not_count() -> None:
    step = PrivateSteps(replace(TERMS, noise=1e-6), batches(40, size=np.inf)).take(THETA, compute)
    assert np.abs(step.gradient).max() < 1e-5


def test_noise_is_not_that_of_a_generator_whose_state_could_be_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server sees it bare where gradients are 0."""
    monkeypatch.setattr("os.urandom", lambda size: bytes(range(256)) * (size // 256) + bytes(size % 256))
    steps = [PrivateSteps(TERMS, batches(40, size=0.0)).take(THETA, compute) for _ in range(2)]
    np.testing.assert_array_equal(steps[0].gradient, steps[1].gradient)
    assert np.isfinite(steps[0].gradient).all()
