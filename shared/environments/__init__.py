"""Environments in which a model learns by acting: gym:NAME, on devices and for evaluation.

    opening.py      gym:URI -> an Environment; the outputs of a policy -> actions and their log probabilities
    rollouts.py     a policy that acts -> batches for the losses a2c and ppo; mean return of some episodes

The code is pure numpy, with gymnasium for the environments. model/policy_losses.py has the losses.
"""

from edgeflock.shared.environments.opening import Environment, is_environment, open_environment
from edgeflock.shared.environments.rollouts import Constants, Episodes, Policy, Rollouts, play
