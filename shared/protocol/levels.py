"""A loss as it travels: sixteenths of an octave, 2% from one to the next, which operators do not see.

In msgpack a loss from 1/4 to 245 takes one byte so, one from 1/256 on two, where a float takes five.
"""

import math

MOST = 2400
"""A level is -MOST to MOST. -MOST stands for 0, and for whatever is below."""


def level(loss: float) -> int | None:
    """Of a loss; None if it is no finite number."""
    if not math.isfinite(loss):
        return None
    return -MOST if loss <= 0 else min(max(round(16 * math.log2(loss)), -MOST), MOST)


def loss_at(level: int | None) -> float:
    """That a level of -MOST to MOST stands for; NaN for None."""
    if level is None:
        return math.nan
    return 0.0 if level == -MOST else 2.0 ** (level / 16)
