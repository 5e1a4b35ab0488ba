"""Batches from an environment in which the device acts with its model: client.data = "gym:NAME"."""

import logging
import math

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.backends import Backend, PredictingBackend
from edgeflock.client.data.batcher import Batches
from edgeflock.shared.environments import Constants, Environment, Policy, Rollouts
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.protocol.messages import Facts, Welcome

log = logging.getLogger(__name__)

_MAX_BYTES = 1 << 29
"""Largest size in bytes of the environment steps in one batch."""

Array = NDArray[np.float32]


class Actor(Batches):
    """Acts in its own environments and makes batches of the results.

    Each step is used once. Refused steps are lost, and the next batch comes from a newer model. The episodes'
    returns measure the policy, not the loss.
    """

    def __init__(self, environment: Environment, random: np.random.Generator) -> None:
        self._environment = environment
        self._random = random
        self._rollouts = Rollouts(environment, Constants(), random)
        self._backend: PredictingBackend | None = None
        self._theta = np.zeros(0, np.float32)

    def begin(self, welcome: Welcome, backend: Backend) -> None:
        """Raises ConfigError if the model does not fit the environment, or the loss needs data."""
        of = self._environment
        if welcome.input is not None and tuple(welcome.input) != of.shape:
            raise ConfigError(
                f"client.data = {of.uri!r}: observations have the shape {list(of.shape)}, and those of "
                f"the run {list(welcome.input)} (model.data of the server)"
            )
        if not isinstance(backend, PredictingBackend):
            raise ConfigError(
                f"client.data = {of.uri!r}: a Flower app has data of its own; leave client.data out"
            )
        name = welcome.loss.partition("(")[0]
        if name in LOSSES and not LOSSES[name].acts:
            raise ConfigError(
                f"client.data = {of.uri!r} is an environment, and the run's loss {name!r} is of data; set "
                "model.loss = 'a2c' or 'ppo' on the server, or name data"
            )
        constants = Constants.from_loss(welcome.loss)
        steps = max(welcome.batch, constants.rollout)
        if 4 * steps * (math.prod(of.shape) + of.actions + 3) > _MAX_BYTES:
            raise ConfigError(
                f"client.data = {of.uri!r}: the run asks for {steps:,} steps at a time, which take more than "
                f"{_MAX_BYTES >> 20} MiB; set a smaller local.batch or rollout"
            )
        self._backend = backend
        self._rollouts.close()
        self._rollouts = Rollouts(of, constants, self._random)
        x, y = of.example(2)
        theta = np.zeros(backend.layout.size, np.float32)
        outputs = backend.predictor(theta)(x)
        of.check(outputs)
        backend.gradient(theta, x, y)
        log.info("%s: acts in %d environments at a time", of.uri, of.envs)

    def act(self, theta: Array) -> None:
        """Use the model at theta, float32 [P + B], as the policy of the next batches."""
        self._theta = theta

    def take(self, size: int) -> tuple[Array, Array]:
        """Return (x, y) of at least `size` steps, the same number in each environment."""
        return self._rollouts.batch(size, self._policy)

    def _policy(self) -> Policy:
        assert self._backend is not None, "a run has begun"
        return self._backend.predictor(self._theta)

    def close(self) -> None:
        self._rollouts.close()

    def telemetry(self) -> Facts:
        """The mean return and length of the latest episodes."""
        done = self._rollouts
        if not done.returns:
            return {}
        return {
            "return": round(float(np.mean(done.returns)), 4),
            "length": round(float(np.mean(done.lengths)), 2),
            "episodes": done.episodes,
            "env_steps": done.steps,
        }
