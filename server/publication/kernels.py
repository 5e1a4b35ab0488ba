"""The pass over all parameters for each lossy difference, compiled by numba.

It reads 8 bytes a parameter and writes very little, so memory bandwidth limits it. Most blocks have nothing
to send, and take a few vector instructions.
"""

import numba as nb
from numba import float32, float64, int32, int64

_BLOCK = 64

_BOUNDS = nb.types.Array(int64, 1, "C", readonly=True)
_FLOATS = nb.types.Array(float32, 1, "C", readonly=True)


@nb.njit(
    nb.types.Tuple((int64, float64))(
        _FLOATS, _FLOATS, _BOUNDS, _FLOATS, int64[::1], float32[::1], int64[::1]
    ),
    cache=True,
    # The sum of squares may be added in any order, because no durable data depend on it.
    fastmath={"reassoc", "contract", "nsz"},
)
def select(theta, replica, bounds, thresholds, indices, changes, counts):
    """Find the entries with |theta - replica| above their tensor's threshold.

    Fills indices, changes and counts. Returns the number of such entries, and |theta - replica|^2.
    `indices` gets as many as it has room for.
    """
    found, squared = 0, 0.0
    for tensor in range(thresholds.size):
        threshold, counts[tensor] = thresholds[tensor], 0
        for start in range(bounds[tensor], bounds[tensor + 1], _BLOCK):
            stop = min(start + _BLOCK, bounds[tensor + 1])
            now, then = theta[start:stop], replica[start:stop]
            sum_of_squares, beyond = float32(0), int32(0)
            for i in range(now.size):
                change = now[i] - then[i]
                sum_of_squares += change * change
                beyond += int32(1) if abs(change) > threshold else int32(0)
            squared += sum_of_squares
            counts[tensor] += beyond
            if beyond == 0 or found + beyond > indices.size:
                continue
            for i in range(now.size):
                change = now[i] - then[i]
                if abs(change) > threshold:
                    indices[found] = start + i
                    changes[found] = change
                    found += 1
    return counts.sum(), squared
