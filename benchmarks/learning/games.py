"""Games of ale-py as agents usually train on them."""

from typing import Any

import ale_py
import gymnasium
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation

QBERT = "ALE/Qbert-v5"


def qbert() -> "gymnasium.Env[Any, Any]":
    """Return the game with rewards clipped to -1 and 1, and without random repeats of actions.

    The clipping is that of V. Mnih et al. (Nature, 2015).
    """
    gymnasium.register_envs(ale_py)
    game = gymnasium.make(QBERT, frameskip=1, repeat_action_probability=0.0)
    return FrameStackObservation(ClipReward(AtariPreprocessing(game), -1, 1), 4)
