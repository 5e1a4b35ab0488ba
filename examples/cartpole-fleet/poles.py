"""CartPole with poles and planets of one's own: gym:poles:make?length=1.0&gravity=3.7."""

from typing import Any

import gymnasium


def make(length: float = 0.5, gravity: float = 9.8) -> "gymnasium.Env[Any, Any]":
    """CartPole-v1 with a pole of half this `length` in metres, where things fall with this `gravity`."""
    environment = gymnasium.make("CartPole-v1")
    cart: Any = environment.unwrapped
    cart.length, cart.gravity = length, gravity
    cart.polemass_length = cart.masspole * length
    return environment
