"""Evaluation of a policy: the mean return of episodes with fixed seeds, on model.data = "gym:NAME"."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.evaluation.model_scores import ModelScores
from edgeflock.shared.environments import Environment, Policy, play
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.losses import resolve_loss
from edgeflock.shared.protocol.frames import RETURN
from edgeflock.shared.settings.config import Config

if TYPE_CHECKING:
    from edgeflock.shared.model.torch_module import FlatModule

LENGTH = "length"
"""A metric: the mean number of steps of the episodes."""


class EpisodeScores:
    """Plays the episodes of an evaluation."""

    def __init__(self, flat: "FlatModule", environment: Environment) -> None:
        """Raises ConfigError if the module is no policy for the environment."""
        self._flat = flat
        self._environment = environment
        x, y = environment.example(2)
        theta = flat.theta()
        environment.check(self._policy(theta)(x))
        try:
            flat.gradient(theta, x, y)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise ConfigError(
                f"model.module {flat.path!r} with this model.loss does not fit model.data "
                f"{environment.uri!r}: {error}"
            ) from error

    def _policy(self, theta: NDArray[np.float32]) -> Policy:
        return self._flat.predictor(theta)

    def evaluate(self, theta: NDArray[np.float32]) -> ModelScores:
        """The loss is the negated mean return: less is better, as for any loss."""
        done = play(self._environment, self._policy(theta))
        mean = float(np.mean(done.returns))
        return ModelScores(-mean, metrics={RETURN: mean, LENGTH: float(np.mean(done.lengths))})


def check(config: Config, *, acts: bool) -> None:
    """Raise ConfigError if settings need data but there is an environment, or the reverse."""
    loss = resolve_loss(config.model.loss)[0]
    name = config.model.loss
    if loss.acts and not acts:
        raise ConfigError(
            f"model.loss = {name!r} is of a policy that acts: set model.data to an environment, e.g. "
            "gym:CartPole-v1, or another loss"
        )
    if not acts:
        return
    if not (loss.acts or ":" in name):
        raise ConfigError(
            f"model.data = {config.model.data!r} is an environment, and model.loss = {name!r} is of data: "
            "set model.loss = 'a2c' or 'ppo'"
        )
    if config.model.metrics:
        raise ConfigError(
            f"model.metrics = {config.model.metrics} are of held-out data, and model.data = "
            f"{config.model.data!r} is an environment, which has the metrics return and length: leave them "
            "out"
        )
    if config.coordination.traits.tasks:
        raise ConfigError(
            f"coordination.mode = {config.coordination.mode!r} is of shards of data, and devices act in an "
            "environment: choose another mode"
        )
