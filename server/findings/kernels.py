"""The inner loop of what is looked at in an update, compiled by numba as those of the descent."""

import numba as nb
from numba import float32, float64, int64

_INDICES = nb.types.Array(int64, 1, "C", readonly=True)
_FLOATS = nb.types.Array(float32, 1, "C", readonly=True)


@nb.njit(
    nb.types.UniTuple(float64, 3)(_INDICES, _FLOATS, int64, float32[::1], float32[::1], float32), cache=True
)
def compare_and_vote(where, delta, first, everybody, group, weight):
    """(delta . others, |others|^2, |delta|^2) at those k = where[i] - first that are not below 0, where the
    others are everybody_k - group_k; then both of these += weight delta.
    """
    along, length, own = 0.0, 0.0, 0.0
    for i in range(where.size):
        k = where[i] - first
        if k >= 0:
            others = everybody[k] - group[k]
            along += delta[i] * others
            length += others * others
            own += delta[i] * delta[i]
            group[k] += weight * delta[i]
            everybody[k] += weight * delta[i]
    return along, length, own
