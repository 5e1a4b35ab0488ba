"""Gradients by torch: what a device draws at random is its own."""

import numpy as np
import pytest
import torch

from edgeflock.client.backends.torch import TorchBackend
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.modules import building
from edgeflock.shared.model.torch_module import FlatModule
from tests.client.backends import drawing

X = np.random.default_rng(0).random((8, 6), np.float32)
Y = np.arange(8) % 2


def gradients(backend: TorchBackend, steps: int) -> list[bytes]:
    theta = np.ones(backend.layout.size, np.float32)
    return [backend.gradient(theta, X, Y).gradient.tobytes() for _ in range(steps)]


def test_a_device_draws_its_own_random_numbers_and_leaves_the_programs() -> None:
    before = torch.get_rng_state()
    path = f"{drawing.__name__}:Dropping"
    one, alike, other = (TorchBackend(path, "cross_entropy", seed=seed, threads=0) for seed in (1, 1, 2))
    alone = gradients(one, 3)
    in_turns = [(*gradients(alike, 1), *gradients(other, 1)) for _ in range(3)]
    assert torch.equal(torch.get_rng_state(), before)
    assert len(set(alone)) == 3
    assert [first for first, _ in in_turns] == alone
    assert not {second for _, second in in_turns} & set(alone)


def test_a_module_that_draws_none_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = TorchBackend(f"{drawing.__name__}:Plain", "cross_entropy", threads=0)
    first = gradients(backend, 1)
    monkeypatch.delattr(building, "_RANDOM")  # the process has one, for whoever draws
    assert gradients(backend, 2) == first * 2


@pytest.mark.parametrize("accelerator", ["cuda", "mps"])
def test_an_accelerator_computes_the_same_gradients_or_says_that_it_is_not_there(
    accelerator: str,
) -> None:
    path = "edgeflock.client.zoo:ResNetBN"
    there = torch.cuda.is_available() if accelerator == "cuda" else torch.backends.mps.is_available()
    if not there:
        wanted = rf"client\.accelerator = '{accelerator}'.*cannot use it here.*leave it out"
        with pytest.raises(ConfigError, match=wanted):
            TorchBackend(path, "cross_entropy", threads=0, accelerator=accelerator)
        return
    here, far = (TorchBackend(path, "cross_entropy", threads=0, accelerator=one) for one in ("", accelerator))
    theta = FlatModule(path, "cross_entropy").theta()
    x, y = np.random.default_rng(0).random((8, 3, 32, 32), np.float32), np.arange(8) % 10
    usual, other = here.gradient(theta, x, y), far.gradient(theta, x, y)
    assert np.linalg.norm(usual.gradient - other.gradient) < 0.1 * np.linalg.norm(usual.gradient)  # TF32
    np.testing.assert_allclose(usual.statistics, other.statistics, rtol=0.05, atol=0.01)
    outputs, others = (one.predictor(theta)(x)[0] for one in (here, far))
    np.testing.assert_allclose(outputs, others, rtol=0.05, atol=0.05)
