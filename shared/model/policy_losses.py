"""Losses of a policy that learns by acting, in torch: a2c and ppo.

A policy returns (logits, value) for actions of classes, or (mean, log deviation, value) for numbers. The
columns of a batch's y are action..., advantage, return, log probability (environments/rollouts.py). Arguments
for the batches (environments.Constants) are accepted here, too, without effect.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

_ENTROPY_OF_NORMAL = 0.5 * math.log(2 * math.pi * math.e)
_HALF_LOG = 0.5 * math.log(2 * math.pi)
_TINY = 1e-6
"""Larger than the numbers that the exporter treats as zero."""


def a2c(
    output: tuple[Tensor, ...],
    batch: Mapping[str, Tensor],
    *,
    entropy: float = 0.0,
    value: float = 0.5,
    normalize: bool = False,
    discount: float = 0.99,
    gae: float = 0.95,
    reward_scale: float = 1.0,
) -> Tensor:
    """Advantage actor-critic: mean(-A log pi(a)) + `value` mean((R - V)^2) - `entropy` mean(H(pi)).

    V. Mnih et al., "Asynchronous methods for deep reinforcement learning", ICML 2016, section 4 and
    algorithm S3. With `normalize` the advantages A of a batch get mean 0 and deviation 1.
    """
    log_probability, randomness, expected = _evaluate(output, batch["y"])
    advantage, returns = batch["y"][:, -3], batch["y"][:, -2]
    advantage = _normalized(advantage) if normalize else advantage
    policy = -(advantage * log_probability).mean()
    return policy + value * (returns - expected).square().mean() - entropy * randomness.mean()


def ppo(
    output: tuple[Tensor, ...],
    batch: Mapping[str, Tensor],
    *,
    clip: float = 0.2,
    entropy: float = 0.01,
    value: float = 0.5,
    normalize: bool = True,
    discount: float = 0.99,
    gae: float = 0.95,
    rollout: int = 512,
    epochs: int = 4,
    reward_scale: float = 1.0,
) -> Tensor:
    """Proximal policy optimization: as a2c, with -min(r A, clip(r, 1 - `clip`, 1 + `clip`) A) for -A log pi.

    r is the action's probability over that when it was taken. J. Schulman et al., "Proximal policy
    optimization algorithms", 2017, equations 7 and 9.
    """
    log_probability, randomness, expected = _evaluate(output, batch["y"])
    advantage, returns, previous = batch["y"][:, -3], batch["y"][:, -2], batch["y"][:, -1]
    advantage = _normalized(advantage) if normalize else advantage
    ratio = (log_probability - previous).exp()
    policy = -torch.minimum(advantage * ratio, advantage * ratio.clamp(1 - clip, 1 + clip)).mean()
    return policy + value * (returns - expected).square().mean() - entropy * randomness.mean()


def _evaluate(output: tuple[Tensor, ...], y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (log probability of each action, entropy of each policy, each value): [n]."""
    if not isinstance(output, tuple) or len(output) not in (2, 3):
        raise TypeError("a policy returns (logits, value) or (mean, log deviation, value)")
    *actor, expected = output
    if len(actor) == 1:
        logs = actor[0].log_softmax(1)
        classes = torch.arange(logs.shape[1], dtype=y.dtype)
        taken = (y[:, :1] == classes).to(logs.dtype)  # gather has no simple backward in ONNX
        return (logs * taken).sum(1), -(logs.exp() * logs).sum(1), expected.reshape(-1)
    mean, log_deviation = actor
    distance = (y[:, :-3] - mean) * (-log_deviation).exp()
    log_probability = (-0.5 * distance.square() - log_deviation - _HALF_LOG).sum(1)
    return log_probability, (log_deviation + _ENTROPY_OF_NORMAL).sum(1), expected.reshape(-1)


def _normalized(advantage: Tensor) -> Tensor:
    centred = advantage - advantage.mean()
    return centred / (centred.square().mean().sqrt() + _TINY)
