"""The inner loops of the server's hot path, compiled by numba.

Each loop implements the formula in its caller's docstring. They are compiled for fixed types when this module
is first imported, and kept in numba's cache on disk. They follow IEEE 754 strictly (no fast-math, no fused
operations), so that a replay gives the same bits. They avoid branches that depend on the data, because about
half of these would be mispredicted.

The optimizers' loops read the entries of a weighed and clipped gradient g. They skip zero entries, so that an
update affects only the parameters that it changes. Row k of `memory` is the state of parameter k. lambda is
the weight decay, beta = beta_1. optimizer.py has the formulas.
"""

import numba as nb
import numpy as np
from numba import float32, float64, int64, uint8, uint16, uint32, uint64

_INDICES = nb.types.Array(int64, 1, "C", readonly=True)
_FLOATS = nb.types.Array(float32, 1, "C", readonly=True)
_MEMORY = float32[:, ::1]

_BLOCK = 256
"""Entries that are processed together."""


@nb.njit(uint64(uint64), inline="always")
def _popcount(word):
    """Set bits of a 64-bit word (H. S. Warren, Hacker's Delight, 5-1)."""
    word -= (word >> uint64(1)) & uint64(0x5555555555555555)
    word = (word & uint64(0x3333333333333333)) + ((word >> uint64(2)) & uint64(0x3333333333333333))
    word = (word + (word >> uint64(4))) & uint64(0x0F0F0F0F0F0F0F0F)
    return (word * uint64(0x0101010101010101)) >> uint64(56)


@nb.njit(
    [
        nb.void(_INDICES, _FLOATS, uint8[::1], uint8[::1], uint8),
        nb.void(_INDICES, _FLOATS, uint16[::1], uint64[::1], uint64),
    ],
    cache=True,
)
def touch(indices, delta, now, history, bit):
    """T_k += 1 and H_k |= bit for k = indices[i], if delta[i] != 0."""
    for i in range(indices.size):
        k = indices[i]
        changed = delta[i] != 0
        now[k] += changed
        history[k] |= bit * changed


@nb.njit(
    [
        nb.void(
            _INDICES, _FLOATS, float32, float32,
            uint8[::1], uint8[::1], uint8[::1], uint8, int64, float32[::1],
        ),
        nb.void(
            _INDICES, _FLOATS, float32, float32,
            uint16[::1], uint16[::1], uint64[::1], uint64, int64, float32[::1],
        ),
    ],
    cache=True,
)  # fmt: skip
def weigh(indices, delta, weight, together, now, before, then, below, mask, gradient):
    """gradient[i] = weight / max(1, sigma_k / together) * delta[i] for k = indices[i].

    sigma_k counts up to `mask`.
    """
    for i in range(indices.size):
        k = uint64(indices[i])
        sigma = (int64(now[k]) - int64(before[k]) - int64(_popcount(uint64(then[k] & below)))) & mask
        gradient[i] = weight / max(float32(1), float32(sigma) / together) * delta[i]


@nb.njit(
    [
        nb.void(
            float32[::1], _INDICES, _FLOATS, float32, float32,
            uint8[::1], uint8[::1], uint8[::1], uint8, int64, uint8[::1], uint8,
        ),
        nb.void(
            float32[::1], _INDICES, _FLOATS, float32, float32,
            uint16[::1], uint16[::1], uint64[::1], uint64, int64, uint64[::1], uint64,
        ),
    ],
    error_model="numpy",
    cache=True,
)  # fmt: skip
def weigh_and_descend(
    theta, indices, delta, weight, together, now, before, then, below, mask, history, bit
):  # fmt: skip
    """theta_k -= weight / max(1, sigma_k / together) * delta[i] for k = indices[i]; then as `touch`.

    It reads and writes all that belongs to a parameter at once, since most of its time goes to memory.
    """
    for i in range(indices.size):
        k = uint64(indices[i])
        sigma = (int64(now[k]) - int64(before[k]) - int64(_popcount(uint64(then[k] & below)))) & mask
        theta[k] -= weight / max(float32(1), float32(sigma) / together) * delta[i]
        changed = delta[i] != 0
        now[k] += changed
        history[k] |= bit * changed


@nb.njit(nb.void(float32[::1], _INDICES, _FLOATS, float32), cache=True)
def descend(theta, indices, delta, rate):
    """theta_k -= rate * delta[i] for k = indices[i]."""
    for i in range(indices.size):
        theta[uint64(indices[i])] -= rate * delta[i]


@nb.njit(nb.void(float32[::1], _FLOATS, float32), cache=True)
def approach(average, theta, weight):
    """average_k += weight (theta_k - average_k) for all k."""
    for k in range(average.size):
        average[k] += weight * (theta[k] - average[k])


@nb.njit(float64(_FLOATS), cache=True)
def max_magnitude(vector):
    """The largest magnitude in `vector`, by its bits. NaN and infinity are beyond every number."""
    largest, bits = uint32(0), np.empty(1, np.uint32)
    for word in vector.view(np.uint32):  # integers, so that the loop vectorises
        largest = max(largest, word & uint32(0x7FFFFFFF))
    bits[0] = largest
    return float64(bits.view(np.float32)[0])


@nb.njit(float64(_FLOATS, float64), cache=True)
def squares(gradient, total):
    """Return total + |g|^2, summed in order in float64. Slices give the same result as all at once."""
    for entry in gradient:
        total += float64(entry) * float64(entry)
    return total


@nb.njit(float64(_FLOATS), cache=True)
def norm(gradient):
    """|g|."""
    return np.sqrt(squares(gradient, float64(0)))


@nb.njit(nb.void(float32[::1], _INDICES, _FLOATS, float32, float32), cache=True)
def sgd(theta, indices, gradient, rate, decay):
    """theta_k -= rate (g_k + lambda theta_k)."""
    for i in range(indices.size):
        if gradient[i] != 0:
            k = indices[i]
            theta[k] -= rate * (gradient[i] + decay * theta[k])


@nb.njit(nb.void(float32[::1], _MEMORY, _INDICES, _FLOATS, float32, float32, float32, nb.boolean), cache=True)
def momentum(theta, memory, indices, gradient, rate, decay, beta, nesterov):
    """v_k = beta v_k + g_k + lambda theta_k; theta_k -= rate v_k.

    With `nesterov`, theta_k -= rate (g_k + lambda theta_k + beta v_k).
    """
    for i in range(indices.size):
        if gradient[i] != 0:
            k = indices[i]
            decayed = gradient[i] + decay * theta[k]
            velocity = beta * memory[k, 0] + decayed
            memory[k, 0] = velocity
            theta[k] -= rate * (decayed + beta * velocity if nesterov else velocity)


@nb.njit(error_model="numpy", cache=True)
def _adam_move(values, mean, square, to_mean, to_square, gradient, rate, coupled, decoupled, epsilon):
    """The formulas of `adam` for each entry of a block: eight at a time where the machine can."""
    for i in range(values.size):
        decayed = gradient[i] + coupled * values[i]
        mean[i] = mean[i] + to_mean[i] * (decayed - mean[i])
        square[i] = square[i] + to_square[i] * (decayed * decayed - square[i])
        move = decoupled * values[i] + mean[i] / (np.sqrt(square[i]) + epsilon)
        values[i] = values[i] - rate * move


@nb.njit(
    nb.void(
        float32[::1], _MEMORY, _INDICES, _FLOATS, float32, float32, float32, float32, _FLOATS, _FLOATS
    ),
    error_model="numpy",
    cache=True,
)  # fmt: skip
def adam(theta, memory, indices, gradient, rate, coupled, decoupled, epsilon, means, squares):
    """theta_k -= rate (decoupled theta_k + m_k / (sqrt(s_k) + epsilon)).

    Before: g_k += coupled theta_k; m_k += means[t_k] (g_k - m_k); s_k += squares[t_k] (g_k^2 - s_k);
    t_k += 1.
    Each block is gathered, computed and written back, so that memory access and square roots overlap.
    Unsigned indices avoid a check of each sign.
    """
    values, mean, square = np.empty(_BLOCK, float32), np.empty(_BLOCK, float32), np.empty(_BLOCK, float32)
    to_mean, to_square = np.empty(_BLOCK, float32), np.empty(_BLOCK, float32)
    last = float32(means.size - 1)
    for start in range(0, indices.size, _BLOCK):
        block, slopes = indices[start : start + _BLOCK], gradient[start : start + _BLOCK]
        size = block.size
        for i in range(size):
            k = uint64(block[i])
            values[i], mean[i], square[i] = theta[k], memory[k, 0], memory[k, 1]
            times = uint64(memory[k, 2])
            to_mean[i], to_square[i] = means[times], squares[times]
        _adam_move(
            values[:size], mean[:size], square[:size], to_mean[:size], to_square[:size], slopes,
            rate, coupled, decoupled, epsilon,
        )  # fmt: skip
        for i in range(size):
            if slopes[i] != 0:
                k = uint64(block[i])
                theta[k], memory[k, 0], memory[k, 1] = values[i], mean[i], square[i]
                memory[k, 2] = min(memory[k, 2] + float32(1), last)
