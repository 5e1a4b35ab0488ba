"""What a policy that acts learns from."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.shared.environments import Constants, Policy, Rollouts, play
from edgeflock.shared.errors import ConfigError
from tests.shared.environments.worlds import world

Array = NDArray[np.float32]


def always(action: int, value: float = 0.0) -> Policy:
    """Takes one of two actions."""
    logits = np.full(2, -50, np.float32)
    logits[action] = 50

    def policy(x: Array) -> tuple[Array, ...]:
        return np.tile(logits, (len(x), 1)), np.full(len(x), value, np.float32)

    return policy


def rollouts(name: str, **constants: float) -> Rollouts:
    return Rollouts(world(name), Constants(**constants), np.random.default_rng(0))  # type: ignore[arg-type]


def test_a_batch_has_observations_actions_and_what_came_of_them() -> None:
    acting = rollouts("Corridor?length=3&envs=2", discount=0.5, gae=1)
    x, y = acting.batch(8, lambda: always(1))
    assert x[:, 0].tolist() == [0, 0, 1, 1, 2, 2, 0, 0], "time: a step of each environment, then the next"
    assert y[:, 0].tolist() == [1.0] * 8
    np.testing.assert_allclose(y[:, 1], [1.75, 1.75, 1.5, 1.5, 1, 1, 1, 1])
    np.testing.assert_allclose(y[:, 2], y[:, 1], err_msg="values are 0, so returns are advantages")
    np.testing.assert_allclose(y[:, 3], 0, atol=1e-6)
    assert list(acting.returns) == [3.0, 3.0]
    assert list(acting.lengths) == [3, 3]
    assert (acting.episodes, acting.steps) == (2, 8)


def test_episodes_go_on_from_batch_to_batch() -> None:
    acting = rollouts("Corridor?length=5&envs=1")
    times = [acting.batch(2, lambda: always(0))[0][:, 0].tolist() for _ in range(3)]
    assert times == [[0, 1], [2, 3], [4, 0]]


def test_what_is_cut_off_counts_what_it_expected() -> None:
    """An episode that ends is worth nothing more; one that is cut off would have gone on."""
    ends = rollouts("Corridor?length=1&envs=1", discount=0.5).batch(1, lambda: always(1, 8.0))[1]
    cut = rollouts("Corridor?length=1&envs=1&cut=True", discount=0.5).batch(1, lambda: always(1, 8.0))[1]
    assert ends[0, 2] == 1.0
    assert cut[0, 2] == 1.0 + 0.5 * 8.0


def test_a_rollout_is_cut_into_batches_as_often_as_there_are_epochs() -> None:
    acting = rollouts("Corridor?length=100&envs=2", rollout=8, epochs=2)
    made = []

    def policy() -> Policy:
        made.append(True)
        return always(1)

    batches = [acting.batch(4, policy) for _ in range(4)]
    assert len(made) == 1, "all of one model"
    for epoch in (batches[:2], batches[2:]):
        times = sorted(time for x, _ in epoch for time in x[:, 0].tolist())
        assert times == [0, 0, 1, 1, 2, 2, 3, 3]
    acting.batch(4, policy)
    assert len(made) == 2


def test_a_batch_is_at_least_a_step_of_each_environment() -> None:
    x, _ = rollouts("Corridor?length=9&envs=4").batch(2, lambda: always(1))
    assert len(x) == 4


def test_rewards_may_be_scaled_and_returns_are_told_as_they_are() -> None:
    acting = rollouts("Corridor?length=1&envs=1", reward_scale=0.1)
    _, y = acting.batch(1, lambda: always(1))
    assert y[0, 2] == pytest.approx(0.1)
    assert list(acting.returns) == [1.0]


def test_constants_of_a_loss() -> None:
    assert Constants.from_loss("a2c") == Constants()
    assert Constants.from_loss("a2c(entropy=0.5, gae=0.9)") == Constants(gae=0.9)
    assert Constants.from_loss("ppo") == Constants(gae=0.95, rollout=512, epochs=4)
    assert Constants.from_loss("ppo(epochs=2)") == Constants(gae=0.95, rollout=512, epochs=2)
    for text in ("a2c(gae='much')", "ppo(epochs=0)", "a2c(discount=-1)", "a2c(gae=True)"):
        with pytest.raises(ConfigError, match="must be a number"):
            Constants.from_loss(text)


def test_the_same_policy_plays_the_same_episodes() -> None:
    def undecided(x: Array) -> tuple[Array, ...]:
        return np.zeros((len(x), 2), np.float32), np.zeros(len(x), np.float32)

    sampled = world("Corridor?length=9&episodes=5&sampled")
    one, same = play(sampled, undecided), play(sampled, undecided)
    assert one == same
    assert one.lengths == (9,) * 5
    assert len(set(one.returns)) > 1
    assert play(world("Corridor?episodes=2"), always(1)).returns == (3.0, 3.0)
    assert play(world("Corridor?episodes=3"), always(0)).returns == (0.0, 0.0, 0.0)
