"""Coding of a loss in sixteenths of an octave: steps of about 2%, too small for operators to notice.

In msgpack a loss from 1/4 to 245 takes one byte, one from 1/256 takes two, and a float takes five.
"""

import math

MAX_LEVEL = 2400
"""A level is -MOST to MOST. -MOST stands for 0 and for all smaller losses."""


def level(loss: float) -> int | None:
    """Return the level of a loss; None if the loss is not finite."""
    if not math.isfinite(loss):
        return None
    return -MAX_LEVEL if loss <= 0 else min(max(round(16 * math.log2(loss)), -MAX_LEVEL), MAX_LEVEL)


def loss_of(level: int | None) -> float:
    """Return the loss of a level of -MOST to MOST; NaN for None."""
    if level is None:
        return math.nan
    return 0.0 if level == -MAX_LEVEL else 2.0 ** (level / 16)
