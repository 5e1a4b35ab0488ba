"""The reference models: as large as they say, and they learn."""

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.client import zoo
from edgeflock.client.backends.torch import TorchBackend
from edgeflock.shared.model.torch_module import FlatModule

MODELS: dict[str, tuple[tuple[int, ...], int, int, int]] = {
    "DigitsCNN": ((1, 8, 8), 10, 38_282, 0),
    "PaperMLP": ((1, 28, 28), 10, 118_282, 0),
    "DigitsLinear": ((1, 8, 8), 10, 650, 0),
    "TabularMLP": ((16,), 2, 610, 0),
    "SpeechCNN": ((1, 64, 40), 10, 333_194, 0),
    "PaperCNN": ((1, 28, 28), 10, 211_690, 0),
    "SvhnCNN": ((3, 32, 32), 10, 40_450, 0),
    "SvhnMLP": ((3, 32, 32), 10, 3_465_514, 0),
    "SvhnBN": ((3, 32, 32), 10, 40_500, 50),
    "SvhnGN": ((3, 32, 32), 10, 40_494, 0),
    "ResNetGN": ((3, 32, 32), 10, 78_042, 0),
    "ResNetBN": ((3, 32, 32), 10, 78_042, 672),
    "WordTagger": ((20,), 49, 5_667_569, 0),
}
"""Name -> (shape of a sample, classes, parameters, running statistics)."""

POLICIES = {"ActorCritic": 9_155, "PixelActorCritic": 1_687_719}
"""Name -> parameters."""

every_model = pytest.mark.parametrize("name", MODELS)


def path(name: str) -> str:
    return f"edgeflock.client.zoo:{name}"


def batch(name: str, size: int = 6) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    shape, classes, _, _ = MODELS[name]
    random = np.random.default_rng(0)
    x = random.standard_normal((size, *shape)).astype(np.float32)
    if name == "WordTagger":
        x = random.integers(0, 23_042, x.shape).astype(np.float32)
    return x, random.integers(0, classes, (size, 20) if name == "WordTagger" else size)


def test_every_model_is_here() -> None:
    own = {name for name, kind in vars(zoo).items() if isinstance(kind, type)}
    assert own == MODELS.keys() | POLICIES.keys() | {"LanguageModel"}


@every_model
def test_it_is_as_large_as_it_says(name: str) -> None:
    _, _, parameters, statistics = MODELS[name]
    layout = FlatModule(path(name), "cross_entropy").layout
    assert (layout.parameters.size, layout.buffers) == (parameters, statistics)
    said = re.findall(r"([\d,]+) (parameters|running statistics)", getattr(zoo, name).__doc__)
    assert (f"{parameters:,}", "parameters") in said
    assert not statistics or (str(statistics), "running statistics") in said


def test_a_policy_of_pictures_is_as_large_as_it_says_and_undecided_at_first() -> None:
    flat = FlatModule(path("PixelActorCritic(actions=6)"), "a2c")
    assert flat.layout.size == POLICIES["PixelActorCritic"]
    assert f"{flat.layout.size:,} parameters with 6 actions" in str(zoo.PixelActorCritic.__doc__)
    x = np.random.default_rng(0).random((10, 4, 84, 84), np.float32)
    logits, value = flat.predictor(flat.theta())(x)
    assert (logits.shape, value.shape) == ((10, 6), (10,))
    assert np.abs(logits).max() < 0.1


def test_a_policy_is_as_large_as_it_says_and_undecided_at_first() -> None:
    flat = FlatModule(path("ActorCritic"), "a2c")
    assert flat.layout.size == POLICIES["ActorCritic"]
    assert f"{flat.layout.size:,} parameters" in str(zoo.ActorCritic.__doc__)
    x = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    logits, value = flat.predictor(flat.theta())(x)
    assert (logits.shape, value.shape) == ((100, 2), (100,))
    assert np.abs(logits).max() < 0.1
    path_of_numbers = path("ActorCritic(observations=3, actions=1, continuous=True)")
    numbers = FlatModule(path_of_numbers, "a2c")
    mean, log_deviation, _ = numbers.predictor(numbers.theta())(x[:, :3])
    assert (mean.shape, log_deviation.shape) == ((100, 1), (100, 1))


@every_model
def test_it_descends(name: str) -> None:
    """On one batch: every tensor gets a gradient, and the loss falls."""
    backend = TorchBackend(path(name), "cross_entropy", seed=1)
    flat = FlatModule(path(name), "cross_entropy", seed=1)
    theta, (x, y) = flat.theta(), batch(name)
    losses = []
    for _ in range(8):
        loss, gradient, statistics, _, _ = backend.gradient(theta, x, y)
        assert statistics.size == MODELS[name][3]
        for tensor in backend.layout.parameters.tensors:
            assert gradient[tensor.start : tensor.stop].any(), tensor.name
        theta[: gradient.size] -= np.float32(0.02) * gradient
        theta[gradient.size :] = statistics
        losses.append(loss)
    assert losses[-1] < losses[0]
    loss, accuracy = flat.evaluate(theta, x, y)
    assert np.isfinite(loss)
    assert accuracy is not None
    assert 0 <= accuracy <= 1


@pytest.mark.parametrize("name", ["ResNetGN", "DigitsCNN"])
def test_samples_have_nothing_to_do_with_each_other(name: str) -> None:
    """Which BatchNorm's do while it trains."""
    flat = FlatModule(path(name), "cross_entropy")
    x, y = batch(name)
    whole = flat.gradient(flat.theta(), x, y)[1].copy()
    parts = [flat.gradient(flat.theta(), x[i : i + 1], y[i : i + 1])[1].copy() for i in range(len(x))]
    np.testing.assert_allclose(np.mean(parts, axis=0), whole, rtol=1e-3, atol=1e-5)
