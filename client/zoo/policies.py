"""Policies for devices that act in an environment."""

import torch
from torch import Tensor, nn


class ActorCritic(nn.Module):
    """A policy for observations of one dimension: an actor and a critic of two hidden layers each.

    Returns (logits [b, actions], value [b]), or with `continuous` (mean, log deviation, value). All actions
    are about equally likely at first. 9,155 parameters with 4 observations and 2 actions, as CartPole-v1 has.
    """

    def __init__(
        self, observations: int = 4, actions: int = 2, *, width: int = 64, continuous: bool = False
    ) -> None:
        super().__init__()
        self.actor = _hidden(observations, width, actions, 0.01)
        self.critic = _hidden(observations, width, 1, 1.0)
        self.log_deviation = nn.Parameter(torch.zeros(actions)) if continuous else None

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        actor, value = self.actor(x), self.critic(x).squeeze(1)
        if self.log_deviation is None:
            return actor, value
        return actor, self.log_deviation + torch.zeros_like(actor), value


class PixelActorCritic(nn.Module):
    """An actor-critic policy for four pictures of 84 x 84, as in ale-py's games.

    The network is that of V. Mnih et al. (Nature, 2015) with an actor and a critic on top.

    Returns (logits [b, actions], value [b]). 1,687,719 parameters with 6 actions.
    """

    def __init__(self, actions: int = 6) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 512),
            nn.ReLU(),
        )
        self.actor, self.critic = nn.Linear(512, actions), nn.Linear(512, 1)
        nn.init.normal_(self.actor.weight, 0.0, 0.01 / 512**0.5)
        nn.init.zeros_(self.actor.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(x)
        return self.actor(features), self.critic(features).squeeze(1)


def _hidden(inputs: int, width: int, outputs: int, gain: float) -> nn.Sequential:
    layers = nn.Sequential(
        nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs)
    )
    for layer, its_gain in ((layers[0], 2**0.5), (layers[2], 2**0.5), (layers[4], gain)):
        assert isinstance(layer, nn.Linear)
        nn.init.normal_(layer.weight, 0.0, its_gain / layer.in_features**0.5)
        nn.init.zeros_(layer.bias)
    return layers
