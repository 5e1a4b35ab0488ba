"""A policy that acts: batches for the losses a2c and ppo, and the mean return of some episodes.

Advantages are estimated as by Schulman et al., "High-dimensional continuous control using generalized
advantage estimation", ICLR 2016, equations 11 to 16.
"""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.environments.opening import Environment, draw
from edgeflock.shared.errors import ConfigError, EdgeflockError, TrainingFailed
from edgeflock.shared.model.calls import Call

if TYPE_CHECKING:
    import gymnasium

Array = NDArray[np.float32]

Policy = Callable[[Array], tuple[Array, ...]]
"""Observations [n, ...] -> the outputs of the module (opening.py)."""

LONGEST = 1 << 20
"""The most steps of a rollout, and the most epochs."""

RECENT = 100
"""The number of episodes in a device's mean."""


@dataclass(frozen=True, slots=True)
class Constants:
    """The arguments of a loss that define its batches; policy_losses.py has the others."""

    discount: float = 0.99
    gae: float = 0.95
    """lambda of generalised advantage estimation. 1: returns over all steps of a rollout, as in A3C."""
    rollout: int = 0
    """Steps before the model learns from them; 0: those of one batch."""
    epochs: int = 1
    """How often the model learns from each rollout."""
    reward_scale: float = 1.0
    """The factor of rewards before the model learns from them."""

    @classmethod
    def from_loss(cls, loss: str) -> "Constants":
        """Parse the constants of a call such as "a2c(gae=0.9)". Raises ConfigError."""
        call = Call.parse(loss, "model.loss")
        defaults = {"ppo": {"rollout": 512, "epochs": 4}}.get(call.name, {})
        names = {one.name for one in fields(cls)}
        found = cls(
            **{**defaults, **{name: value for name, value in call.arguments.items() if name in names}}
        )
        for one in fields(cls):
            value, whole = getattr(found, one.name), one.name in ("rollout", "epochs")
            minimum, maximum = int(one.name == "epochs"), LONGEST if whole else math.inf
            number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
            if not (number and minimum <= value <= maximum and math.isfinite(value)):
                raise ConfigError(
                    f"model.loss = {loss!r}: {one.name} = {value!r} must be a number from {minimum} to "
                    f"{maximum}"
                )
        return found


class Rollouts:
    """The environments of one device, and the experience from which it has not yet learned."""

    def __init__(self, environment: Environment, constants: Constants, random: np.random.Generator) -> None:
        self._environment = environment
        self._constants = constants
        self._random = random
        self._envs: list[gymnasium.Env[Any, Any]] = []
        self._observations: list[Any] = []
        """The latest observation of each environment."""
        self._rewards = np.zeros(environment.envs)
        self._lengths = np.zeros(environment.envs, np.int64)
        self._x, self._y = np.zeros(0, np.float32), np.zeros(0, np.float32)
        """The collected steps."""
        self._ready: deque[NDArray[np.int64]] = deque()
        """The collected steps of each batch from which the model has not yet learned."""
        self.returns: deque[float] = deque(maxlen=RECENT)
        """The sums of the rewards of the latest episodes."""
        self.lengths: deque[int] = deque(maxlen=RECENT)
        self.episodes = 0
        """The number of episodes that have ended."""
        self.steps = 0
        """The number of steps so far, in all environments together."""

    def batch(self, size: int, policy: Callable[[], Policy]) -> tuple[Array, Array]:
        """Return (x [size, ...], y [size, A + 3]), of one step each.

        x has the observations; y the actions, advantage, return and log probability. `size` is rounded up to
        the same number of steps in each environment. Collected steps come first; if there are none, `policy`
        makes the policy that acts. Raises TrainingFailed if an environment fails; the next batch begins with
        new ones.
        """
        if not self._ready:
            steps = math.ceil(max(size, self._constants.rollout) / self._environment.envs)
            try:
                self._x, self._y = self._collect(policy(), steps)
            except EdgeflockError:
                raise
            except Exception as error:  # user environments may raise anything
                self.close()
                raise TrainingFailed(f"{self._environment.uri}: {type(error).__name__}: {error}") from error
            self._deal(size)
        indices = self._ready.popleft()
        return self._x[indices], self._y[indices]

    def close(self) -> None:
        for environment in self._envs:
            with suppress(Exception):  # it may have failed
                environment.close()
        self._envs = []
        self._rewards[:] = self._lengths[:] = 0

    def _deal(self, size: int) -> None:
        """Split the collected steps into batches, once for each epoch; several batches are shuffled."""
        count = len(self._y)
        parts = max(1, count // size) if self._constants.rollout > size else 1
        if parts == 1 and self._constants.epochs == 1:
            self._ready.append(np.arange(count))
            return
        for _ in range(self._constants.epochs):
            self._ready += np.array_split(self._random.permutation(count), parts)

    def _collect(self, policy: Policy, steps: int) -> tuple[Array, Array]:
        spec, constants = self._environment, self._constants
        if not self._envs:
            self._envs = [spec.make() for _ in range(spec.envs)]
            self._observations = [
                one.reset(seed=int(self._random.integers(1 << 31)))[0] for one in self._envs
            ]
        shape = steps, spec.envs
        x = np.zeros((*shape, *spec.shape), np.float32)
        y = np.zeros((*shape, (1 if spec.discrete else spec.actions) + 3), np.float32)
        values, rewards, ended = (
            np.zeros(shape, np.float32),
            np.zeros(shape, np.float32),
            np.zeros(shape, bool),
        )
        for t in range(steps):
            x[t] = spec.to_array(self._observations)
            outputs = policy(x[t])
            if t == 0:
                spec.check(outputs)
            y[t, :, :-3], y[t, :, -1], values[t] = draw(outputs, self._random)
            for place, environment in enumerate(self._envs):
                seen, reward, terminated, truncated, _ = spec.act(environment, y[t, place, :-3])
                self._rewards[place] += float(reward)
                self._lengths[place] += 1
                rewards[t, place] = constants.reward_scale * float(reward)
                if truncated and not terminated:  # it would have continued: add its expected value
                    value = float(policy(spec.to_array([seen]))[-1].reshape(-1)[0])
                    rewards[t, place] += constants.discount * value
                if terminated or truncated:
                    ended[t, place] = True
                    seen = self._end_episode(place)
                self._observations[place] = seen
        last = policy(spec.to_array(self._observations))[-1].reshape(-1)
        y[..., -3], y[..., -2] = advantages(rewards, values, ended, last, constants.discount, constants.gae)
        self.steps += steps * spec.envs
        return x.reshape(-1, *spec.shape), y.reshape(-1, y.shape[-1])

    def _end_episode(self, place: int) -> Any:
        """End an episode, and return the first observation of the next one."""
        self.returns.append(float(self._rewards[place]))
        self.lengths.append(int(self._lengths[place]))
        self.episodes += 1
        self._rewards[place] = self._lengths[place] = 0
        return self._envs[place].reset()[0]


Steps = NDArray[np.float32]
"""float32 [T, E]: T steps of E environments."""


def advantages(
    rewards: Steps, values: Steps, ended: NDArray[np.bool_], last: Steps, discount: float, smoothing: float
) -> tuple[Steps, Steps]:
    """(advantages, returns) of T steps of E environments.

        delta_t = r_t + discount V_{t+1} - V_t
        A_t     = delta_t + discount smoothing A_{t+1}         R_t = A_t + V_t

    V_{t+1} and A_{t+1} count as 0 where the episode `ended` with step t. `last` is V_T: float32 [E].

    >>> one = np.ones((2, 1), np.float32)
    >>> advantages(one, 0 * one, np.array([[False], [True]]), one[0], 0.5, 1.0)[0].ravel().tolist()
    [1.5, 1.0]
    """
    found = np.zeros_like(rewards)
    following, value = np.zeros_like(last), last
    for t in range(len(rewards) - 1, -1, -1):
        goes_on = np.float32(discount) * ~ended[t]
        delta = rewards[t] + goes_on * value - values[t]
        following = delta + np.float32(smoothing) * goes_on * following
        found[t], value = following, values[t]
    return found, found + values


class Episodes(NamedTuple):
    returns: tuple[float, ...]
    """The sum of the rewards of each."""
    lengths: tuple[int, ...]


def play(environment: Environment, policy: Policy) -> Episodes:
    """Play the number of episodes in the environment's URI, all at once.

    The seeds are 0, 1, ...: the same policy gives the same episodes.
    """
    count = environment.episodes
    random = np.random.default_rng(count)
    playing = list(range(count))
    envs = [environment.make() for _ in playing]
    returns, lengths = np.zeros(count), np.zeros(count, np.int64)
    try:
        seen = [one.reset(seed=place)[0] for place, one in enumerate(envs)]
        while playing:
            outputs = policy(environment.to_array([seen[place] for place in playing]))
            chosen = draw(outputs, random, greedy=not environment.sampled)[0]
            for action, place in zip(chosen, tuple(playing), strict=True):
                seen[place], reward, terminated, truncated, _ = environment.act(envs[place], action)
                returns[place] += float(reward)
                lengths[place] += 1
                if terminated or truncated:
                    playing.remove(place)
    finally:
        for one in envs:
            one.close()
    return Episodes(tuple(returns.tolist()), tuple(lengths.tolist()))
