"""Evaluation of a policy: the mean return of some episodes with fixed seeds."""

from typing import NamedTuple

import numpy as np

from edgeflock.shared.environments import actions
from edgeflock.shared.environments.opening import Environment
from edgeflock.shared.environments.rollouts import Policy


class Episodes(NamedTuple):
    """The results of some episodes."""

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
            chosen = actions.draw(outputs, random, greedy=not environment.sampled)[0]
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
