"""Environments of which everything is known."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

from edgeflock.shared.environments.opening import Environment, open_environment

HERE = "gym:tests.shared.environments.worlds:"


class Corridor(gymnasium.Env[Any, Any]):
    """One walks right (1) for a reward of 1, or stays (0) for none; it ends or is cut off after `length`."""

    observation_space = Box(-1, 100, (2,), np.float32)
    action_space: Any = Discrete(2)

    def __init__(self, length: int = 3, *, cut: bool = False) -> None:
        self.length, self.cut = length, cut
        self.time = self.place = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = self.place = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.place += int(action)
        over = self.time >= self.length
        return self._seen(), float(action), over and not self.cut, over and self.cut, {}

    def _seen(self) -> Any:
        return np.array([self.time, self.place], np.float32)


class Target(Corridor):
    """The nearer a number is to 0.5, the better; numbers lie in 0 to 1."""

    action_space = Box(0, 1, (1,), np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        self.place = float(action[0])  # type: ignore[assignment]
        return self._seen(), -abs(float(action[0]) - 0.5), self.time >= self.length, False, {}


class Pictures(Corridor):
    """Bytes are seen."""

    observation_space: Any = Box(0, 255, (3, 4), np.uint8)

    def _seen(self) -> Any:
        return np.full((3, 4), 255, np.uint8)


class Words(Corridor):
    """No array is seen."""

    observation_space: Any = Dict({"a": Discrete(2)})


class Levers(Corridor):
    """Two at a time."""

    action_space = gymnasium.spaces.MultiDiscrete([2, 2])


class Broken(Corridor):
    """Fails on its way."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        raise ZeroDivisionError("the motor is off")


class Hanging(Corridor):
    """Never comes back once it is played."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(1e6)
        raise AssertionError("nobody waits so long")


def nothing() -> None:
    """No environment."""


def world(name: str) -> Environment:
    """One of them, with its options."""
    return open_environment(HERE + name)
