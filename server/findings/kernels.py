"""The inner loop of comparing an update with the votes, compiled by numba as the kernels of the descent."""

import math

import numba as nb
from numba import float32, float64, int64

_INDICES = nb.types.Array(int64, 1, "C", readonly=True)
_FLOATS = nb.types.Array(float32, 1, "C", readonly=True)


@nb.njit(
    nb.types.UniTuple(float64, 4)(_INDICES, _FLOATS, int64, int64, float32[:, ::1], int64, float64),
    cache=True,
    fastmath={"reassoc", "contract"},
)
def compare_and_vote(indices, delta, limit, first, votes, group, weight):
    """Return (|delta|, delta . others, |others|^2, |delta|^2), and add the vote of delta.

    All but the first are over the last `limit` entries with k = indices[i] - first >= 0. others_k is
    votes[k, 0] - votes[k, group]. The vote weight delta / |delta| is added to both of these, unless |delta|
    is 0 or no number. `indices` and `delta` end together.
    """
    square = float32(0)
    for i in range(delta.size):
        square += delta[i] * delta[i]
    norm = math.sqrt(float64(square))
    dot, length, own = float32(0), float32(0), float32(0)
    if 0 < norm < math.inf:
        each = float32(weight / norm)
        count = min(indices.size, limit)
        first_index, first_value = indices.size - count, delta.size - count
        for i in range(count):
            k = indices[first_index + i] - first
            if k >= 0:
                value = delta[first_value + i]
                others = votes[k, 0] - votes[k, group]
                dot += value * others
                length += others * others
                own += value * value
                vote = each * value
                votes[k, 0] += vote
                votes[k, group] += vote
    return norm, float64(dot), float64(length), float64(own)
