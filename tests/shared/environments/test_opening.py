"""Environments by URI, and what is refused."""

import sys

import numpy as np
import pytest

from edgeflock.shared.environments import is_environment, open_environment
from edgeflock.shared.errors import ConfigError
from tests.shared.environments.worlds import HERE, world


def test_one_that_gymnasium_knows() -> None:
    found = open_environment("gym:CartPole-v1?envs=8&episodes=20&sampled")
    assert (found.shape, found.actions, found.discrete) == ((4,), 2, True)
    assert (found.envs, found.episodes, found.sampled) == (8, 20, True)
    assert is_environment(found.uri)
    assert not is_environment("digits:")


def test_one_of_numbers_is_given_no_more_than_it_takes() -> None:
    found = world("Target")
    assert (found.actions, found.discrete) == (1, False)
    playing = found.make()
    playing.reset()
    assert found.act(playing, np.array([3.0], np.float32))[1] == -0.5


def test_a_function_takes_the_options_that_are_left() -> None:
    playing = world("Corridor?length=7&cut=True&envs=2").make()
    assert (playing.unwrapped.length, playing.unwrapped.cut) == (7, True)  # type: ignore[attr-defined]


def test_gymnasium_takes_them_too() -> None:
    playing = open_environment("gym:Pendulum-v1?g=1.5").make()
    assert playing.unwrapped.g == 1.5  # type: ignore[attr-defined]


def test_bytes_are_seen_as_0_to_1() -> None:
    x, y = world("Pictures").example(2)
    assert x.shape == (2, 3, 4)
    np.testing.assert_allclose(x, 1)
    assert y.shape == (2, 4)


def test_a_game_of_atari() -> None:
    pytest.importorskip("ale_py")
    found = open_environment("gym:ALE/Qbert-v5")
    assert (found.shape, found.actions) == ((4, 84, 84), 6)
    x, _ = found.example(1)
    assert 0 <= x.min() <= x.max() <= 1


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("gym:CartPool-v9", "CartPool"),
        ("gym:CartPole-v1?envs=0", "envs=0 must be a whole number from 1"),
        ("gym:CartPole-v1?episodes=x", "episodes=x must be"),
        ("gym:CartPole-v1?colour=2", "colour"),
        ("gym:CartPole-v1?env=3", "did you mean envs="),
        (HERE + "Words", "observations are a Dict, and a policy takes arrays"),
        (HERE + "Levers", "a policy chooses one of n"),
        (HERE + "nothing", "returns a NoneType, not a gymnasium.Env"),
        ("gym:no_such_module_of_anybody:make", "no_such_module_of_anybody"),
    ],
)
def test_what_is_none(uri: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_environment(uri)


def test_without_gymnasium_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ConfigError, match=r"needs gymnasium: pip install .*\[rl\]"):
        open_environment("gym:CartPole-v1")
