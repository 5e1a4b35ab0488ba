"""A port that a server can come back to."""

import random
import socket

_KEPT = 20_000, 30_000
"""Of these no system gives a port to whoever connects somewhere, so that it would be taken meanwhile."""


def lasting() -> int:
    """One that is free now, on 127.0.0.1 and for as long as nobody asks for it by its number."""
    while True:
        port = random.SystemRandom().randrange(*_KEPT)  # none that another process draws, however seeded
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
