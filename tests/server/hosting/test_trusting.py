"""The server's own gradient: of which samples, in which groups."""

import numpy as np
import pytest

from edgeflock.server.hosting.trusting import TrustedGradients, split_trusted
from edgeflock.shared.data.datasets import Dataset, load
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.torch_module import FlatModule


def data(samples: int, classes: int = 3) -> Dataset:
    x = np.arange(samples, dtype=np.float32).reshape(-1, 1)
    return Dataset(x, np.arange(samples) % classes)


@pytest.mark.parametrize(("samples", "apart"), [(80, 20), (400, 100), (10_000, 200)])
def test_what_is_trusted_evaluates_nothing(samples: int, apart: int) -> None:
    own, rest = split_trusted(data(samples))
    assert (len(own), len(rest)) == (apart, samples - apart)
    assert not set(own.x.ravel().tolist()) & set(rest.x.ravel().tolist())
    assert all(one.y.tolist() == [int(i) % 3 for i in one.x.ravel()] for one in (own, rest))


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"at least 80 held-out samples.*has 70; add samples, or set"):
        split_trusted(data(70))


def test_a_gradient_a_class_agrees_with_those_of_right_labels_alone() -> None:
    """At the first model, for samples that it never saw: right labels pull its way, wrong ones do not."""
    flat = FlatModule("edgeflock.client.zoo:DigitsLinear", "cross_entropy")
    own, _ = split_trusted(load("digits:", "test"))
    found = TrustedGradients(flat, own)(7, flat.theta())
    assert (found.version, found.directions.shape) == (7, (650, 11))
    train = load("digits:", "train")
    right = flat.gradient(flat.theta(), train.x[:200], train.y[:200]).gradient.copy()
    wrong = flat.gradient(flat.theta(), train.x[:200], (train.y[:200] + 1) % 10).gradient.copy()
    one = train.y == 4
    lone = flat.gradient(flat.theta(), train.x[one], train.y[one]).gradient.copy()
    agreements = [found.agreement(slice(None), gradient) for gradient in (right, lone, -right, wrong)]
    assert min(one.extremes for one in agreements[:2]) > 0.05
    assert agreements[0].mean > 0.05
    assert agreements[2] == pytest.approx([-one for one in agreements[0]])
    assert agreements[3].extremes < agreements[0].extremes - 0.1


def test_a_model_that_is_sure_and_right_still_has_gradients_of_length_1() -> None:
    """Without a temperature those would be 0."""
    flat = FlatModule("torch.nn:Linear(in_features=10, out_features=10)", "cross_entropy")
    sure = np.zeros(110, np.float32)
    sure[:100] = 1000 * np.eye(10).ravel()
    own = Dataset(np.eye(10, dtype=np.float32), np.arange(10))
    assert not flat.gradient(sure, own.x, own.y).gradient.any()
    lengths = np.linalg.norm(TrustedGradients(flat, own)(0, sure).directions, axis=0)
    np.testing.assert_allclose(lengths, [1] * 10 + [0], rtol=1e-6)


def test_a_gradient_that_is_no_number_says_nothing() -> None:
    flat = FlatModule("torch.nn:Linear(in_features=1, out_features=1)", "mse")
    own = Dataset(np.full((20, 1), 1e30, np.float32), np.ones((20, 1), np.float32))
    assert not TrustedGradients(flat, own)(0, np.full(2, 1e30, np.float32)).directions.any()


def test_numbers_to_predict_and_many_classes_are_one_group() -> None:
    flat = FlatModule("torch.nn:Linear(in_features=1, out_features=1)", "mse")
    own = Dataset(np.ones((20, 1), np.float32), np.ones((20, 1), np.float32))
    assert TrustedGradients(flat, own)(0, flat.theta()).directions.shape == (2, 2)
    flat = FlatModule("torch.nn:Linear(in_features=1, out_features=40)", "cross_entropy")
    assert TrustedGradients(flat, data(40, 40))(0, flat.theta()).directions.shape == (80, 2)


def test_the_movement_is_that_since_the_last_look() -> None:
    flat = FlatModule("torch.nn:Linear(in_features=1, out_features=1)", "mse")
    look = TrustedGradients(flat, Dataset(np.ones((20, 1), np.float32), np.ones((20, 1), np.float32)))
    assert not look(0, np.array([3, 4], np.float32)).directions[:, -1].any()
    moved = look(20, np.array([0, 8], np.float32)).directions[:, -1]
    np.testing.assert_allclose(moved, [0.6, -0.8], rtol=1e-6)
