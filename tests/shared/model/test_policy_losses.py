"""a2c and ppo against their formulas, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.policy_losses import a2c, ppo
from edgeflock.shared.model.torch_module import FlatModule

Drawn = tuple[tuple[Tensor, ...], Tensor, Tensor, Tensor]
"""(outputs, y, log probabilities, entropies) of 16 samples."""


def classes(seed: int = 0) -> Drawn:
    random = torch.Generator().manual_seed(seed)
    logits, value = torch.randn(16, 3, generator=random), torch.randn(16, generator=random)
    action = torch.randint(3, (16,), generator=random)
    rest = torch.randn(16, 3, generator=random)
    of: Any = Categorical(logits=logits)
    return (logits, value), torch.column_stack([action, rest]), of.log_prob(action), of.entropy()


def numbers(seed: int = 0) -> Drawn:
    random = torch.Generator().manual_seed(seed)
    mean, log_deviation = (torch.randn(16, 2, generator=random) for _ in range(2))
    value, action = torch.randn(16, 1, generator=random), torch.randn(16, 2, generator=random)
    of: Any = Normal(mean, log_deviation.exp())
    rest = torch.randn(16, 3, generator=random)
    y = torch.column_stack([action, rest])
    return (mean, log_deviation, value), y, of.log_prob(action).sum(1), of.entropy().sum(1)


@pytest.mark.parametrize("drawn", [classes(), numbers()], ids=["classes", "numbers"])
@pytest.mark.parametrize("normalize", [True, False])
def test_a2c(drawn: Drawn, normalize: bool) -> None:
    output, y, logs, entropies = drawn
    advantage = y[:, -3]
    if normalize:
        advantage = (advantage - advantage.mean()) / advantage.std(correction=0)
    error = (y[:, -2] - output[-1].flatten()).square().mean()
    wanted = -(advantage * logs).mean() + 0.25 * error - 0.1 * entropies.mean()
    found = a2c(output, {"y": y}, entropy=0.1, value=0.25, normalize=normalize)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-4)


@pytest.mark.parametrize("drawn", [classes(1), numbers(1)], ids=["classes", "numbers"])
def test_ppo(drawn: Drawn) -> None:
    output, y, logs, entropies = drawn
    ratio = (logs - y[:, -1]).exp()
    worse = torch.minimum(ratio * y[:, -3], ratio.clip(0.9, 1.1) * y[:, -3])
    error = (y[:, -2] - output[-1].flatten()).square().mean()
    wanted = -worse.mean() + 0.5 * error - 0.01 * entropies.mean()
    assert ppo(output, {"y": y}, clip=0.1, normalize=False).item() == pytest.approx(wanted.item(), rel=1e-4)


def test_advantages_that_are_all_alike_are_none() -> None:
    output, y, _, _ = classes()
    y[:, -3] = 5.0
    assert math.isfinite(a2c(output, {"y": y}, normalize=True).item())
    assert a2c(output, {"y": y}, normalize=True, value=0, entropy=0).item() == pytest.approx(0, abs=1e-5)


def test_both_are_losses_by_name() -> None:
    policy = "edgeflock.client.zoo:ActorCritic(observations=4, actions=2)"
    x, y = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32)
    for loss in ("a2c", "a2c(entropy=0.0, gae=0.9)", "ppo(clip=0.1, epochs=2)"):
        assert math.isfinite(FlatModule(policy, loss).gradient(FlatModule(policy, loss).theta(), x, y).loss)
    with pytest.raises(ConfigError, match="curiosity"):
        FlatModule(policy, "a2c(curiosity=1)")
    digits = FlatModule("edgeflock.client.zoo:DigitsCNN", "a2c")
    with pytest.raises(TypeError, match=r"a policy returns \(logits, value\)"):
        digits.gradient(digits.theta(), np.zeros((2, 1, 8, 8), np.float32), y[:2])
