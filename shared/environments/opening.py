"""Environments by URI, and actions in them from the outputs of a policy.

    gym:CartPole-v1                an environment of gymnasium (extra rl)
    gym:ALE/Qbert-v5               a game of ale-py (extra atari), preprocessed as in Mnih et al. (2015)
    gym:package.module:function    the gymnasium.Env that a function returns

Options follow a question mark:

    envs=8          the number of environments at a time, on a device (4)
    episodes=20     for evaluation: the number of episodes, with seeds 0, 1, ... (10)
    sampled         for evaluation: actions are drawn; without it the likeliest is taken
    NAME=VALUE      arguments of the function, or of gymnasium.make; plain values

A policy returns (logits, value) for a Discrete action space, (mean, log deviation, value) for a Box. `value`
is [n] or [n, 1].
"""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.extras import install_command

if TYPE_CHECKING:
    import gymnasium

SCHEME = "gym:"

_ALE = "ALE/"
_FRAMES = 4
"""Frames in an observation of ale-py's games: Mnih et al., "Human-level control", Nature 2015."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment's observations and actions, and how to make one."""

    uri: str
    make: "Callable[[], gymnasium.Env[Any, Any]]"
    shape: tuple[int, ...]
    """The shape of one observation."""
    actions: int
    """The number of actions to choose from, or of numbers in an action."""
    low: NDArray[np.float32] | None = None
    """The lower bounds of numbers; None: actions are classes."""
    high: NDArray[np.float32] | None = None
    envs: int = 4
    episodes: int = 10
    sampled: bool = False
    scale: np.float32 = field(default=np.float32(1))
    """The factor of observations: byte images become 0 to 1."""

    @property
    def discrete(self) -> bool:
        """Whether actions are classes."""
        return self.low is None

    def check(self, outputs: tuple[NDArray[np.float32], ...]) -> None:
        """Raise ConfigError if a policy that returns `outputs` does not fit."""
        check(outputs, self.actions, discrete=self.discrete)

    def act(self, environment: "gymnasium.Env[Any, Any]", action: NDArray[np.float32]) -> tuple[Any, ...]:
        """Take one step: (observation, reward, terminated, truncated, info). `action` is float32 [A]."""
        if self.low is None:
            return environment.step(int(action[0]))
        return environment.step(np.clip(action, self.low, self.high))

    def to_array(self, observations: list[Any]) -> NDArray[np.float32]:
        """Convert n observations to float32 [n, ...]."""
        return np.asarray(observations, np.float32) * self.scale

    def example(self, samples: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return (x, y) in the form of the losses, from `samples` first observations and the first action."""
        environment = self.make()
        try:
            x = self.to_array([environment.reset(seed=seed)[0] for seed in range(samples)])
        finally:
            environment.close()
        y = np.zeros((samples, (1 if self.discrete else self.actions) + 3), np.float32)
        y[:, -3:] = (1, 1, -math.log(self.actions))
        return x, y


def is_environment(uri: str) -> bool:
    """Whether `uri` names an environment rather than data."""
    return uri.startswith(SCHEME)


def open_environment(uri: str) -> Environment:
    """Open the environment that `uri` names. Raises ConfigError that describes the problem."""
    place, _, query = uri.removeprefix(SCHEME).partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    envs, episodes = _count(uri, options, "envs", 4), _count(uri, options, "episodes", 10)
    sampled = options.pop("sampled", None) is not None
    make = _maker(uri, place, {name: _value(text) for name, text in options.items()})
    try:
        environment = make()
        seen, actions = environment.observation_space, environment.action_space
        environment.close()
    except Exception as error:  # user environments may raise anything
        near = [
            known for name in options for known in get_close_matches(name, ("envs", "episodes", "sampled"), 1)
        ]
        hint = f"; did you mean {near[0]}=?" if near else ""
        raise ConfigError(f"data {uri!r}: {type(error).__name__}: {error}{hint}") from error
    from gymnasium.spaces import Box, Discrete

    if not isinstance(seen, Box):
        raise ConfigError(
            f"data {uri!r}: observations are a {type(seen).__name__}, and a policy takes arrays (Box); wrap "
            "the environment, e.g. with gymnasium.wrappers.FlattenObservation"
        )
    scale = np.float32(1 / 255) if seen.dtype == np.uint8 else np.float32(1)
    if isinstance(actions, Discrete) and int(actions.start) == 0:
        return Environment(
            uri, make, seen.shape, int(actions.n), envs=envs, episodes=episodes, sampled=sampled, scale=scale
        )
    if isinstance(actions, Box) and len(actions.shape) == 1:
        low, high = actions.low.astype(np.float32), actions.high.astype(np.float32)
        return Environment(uri, make, seen.shape, low.size, low, high, envs, episodes, sampled, scale)
    raise ConfigError(
        f"data {uri!r}: actions are {actions}, and a policy chooses one of n (Discrete from 0) or gives a "
        "vector (Box of one dimension); wrap the environment"
    )


def _maker(uri: str, place: str, arguments: dict[str, Any]) -> "Callable[[], gymnasium.Env[Any, Any]]":
    try:
        import gymnasium
    except ImportError as error:
        raise ConfigError(f"data {uri!r} needs gymnasium: {install_command('rl')}") from error
    module, colon, name = place.partition(":")
    if colon:
        try:
            function = getattr(import_module(module), name, None)
        except Exception as error:  # user modules may raise anything
            raise ConfigError(f"data {uri!r}: {type(error).__name__}: {error}") from error
        if callable(function):

            def make() -> "gymnasium.Env[Any, Any]":
                environment = function(**arguments)
                if not isinstance(environment, gymnasium.Env):
                    raise TypeError(f"{place} returns a {type(environment).__name__}, not a gymnasium.Env")
                return environment

            return make
    if place.startswith(_ALE):
        return _atari(uri, place, arguments)
    return lambda: gymnasium.make(place, **arguments)


def _atari(uri: str, place: str, arguments: dict[str, Any]) -> "Callable[[], gymnasium.Env[Any, Any]]":
    """Four grey images of 84 x 84, each four frames later; the loss of a life does not end an episode."""
    try:
        import ale_py
    except ImportError as error:
        raise ConfigError(f"data {uri!r} needs ale-py: {install_command('atari')}") from error
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    gymnasium.register_envs(ale_py)

    def make() -> "gymnasium.Env[Any, Any]":
        game = gymnasium.make(place, frameskip=1, **arguments)
        return FrameStackObservation(AtariPreprocessing(game), _FRAMES)

    return make


def _count(uri: str, options: dict[str, str], name: str, usual: int) -> int:
    text = options.pop(name, str(usual))
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= 4096):
        raise ConfigError(f"data {uri!r}: {name}={text} must be a whole number from 1 to 4096")
    return int(text)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


Array = NDArray[np.float32]

_HALF_LOG = np.float32(0.5 * np.log(2 * np.pi))


def check(outputs: tuple[Array, ...], actions: int, *, discrete: bool) -> None:
    """Raise ConfigError unless `outputs` are those of `actions` classes or numbers, and a value."""
    shapes = [list(output.shape[1:]) for output in outputs]
    if discrete:
        wanted = f"(logits [n, {actions}], value [n])"
        fits = len(outputs) == 2 and shapes[0] == [actions]
    else:
        wanted = f"(mean [n, {actions}], log deviation [n, {actions}], value [n])"
        fits = len(outputs) == 3 and shapes[0] == shapes[1] == [actions]
    if not fits or shapes[-1] not in ([], [1]):
        raise ConfigError(
            f"the environment needs a policy that returns {wanted}, and model.module returns "
            f"{len(outputs)} tensors of shapes {[['n', *shape] for shape in shapes]}"
        )


def draw(
    outputs: tuple[Array, ...], random: np.random.Generator, *, greedy: bool = False
) -> tuple[Array, Array, Array]:
    """Draw (actions [n, A], their log probabilities [n], values [n]); the likeliest actions if `greedy`.

    An action for classes is the number of its class, in one column.
    """
    *actor, value = outputs
    if len(actor) == 1:
        logits = actor[0].astype(np.float64)
        logs = logits - logits.max(axis=1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
        noise = 0.0 if greedy else random.gumbel(size=logs.shape)
        chosen = (logs + noise).argmax(axis=1)
        actions = chosen[:, np.newaxis].astype(np.float32)
        log_probability = logs[np.arange(len(logs)), chosen].astype(np.float32)
    else:
        mean, log_deviation = actor
        noise = np.zeros_like(mean) if greedy else random.standard_normal(mean.shape, np.float32)
        actions = mean + np.exp(log_deviation) * noise
        log_probability = (-(noise**2) / 2 - log_deviation - _HALF_LOG).sum(axis=1)
    return actions, log_probability, value.reshape(-1)
