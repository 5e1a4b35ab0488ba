"""Environments that a model learns from by acting in them: gym:NAME, on devices and for evaluation.

    opening.py      gym:URI -> an Environment: what is observed, what can be done, and how to make one
    actions.py      what a policy returns -> actions and their log probabilities
    advantages.py   rewards and values -> advantages and returns
    rollouts.py     a policy that acts -> batches for the losses a2c and ppo
    episodes.py     a policy that acts -> mean return and length of some episodes

Pure numpy, and gymnasium where an environment is made. The losses are in model/policy_losses.py.
"""

from edgeflock.shared.environments.episodes import Episodes, play
from edgeflock.shared.environments.opening import Environment, is_environment, open_environment
from edgeflock.shared.environments.rollouts import Constants, Policy, Rollouts

__all__ = [
    "Constants",
    "Environment",
    "Episodes",
    "Policy",
    "Rollouts",
    "is_environment",
    "open_environment",
    "play",
]
