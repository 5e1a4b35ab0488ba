"""Test whether other random numbers can replace those from which a module starts.

The only input is two first models of it, under different seeds. A tensor that is one number in both is
constant. The entries of any other must look like independent draws of one uniform or normal distribution.
They must differ in both models and be uncorrelated in value and in size. They must have that marginal
distribution, and a matrix must not be orthogonal or otherwise structured. A new draw would destroy any other
content: pretrained weights, an identity, a row of zeros for padding, a forget gate's bias, two tensors with
the same start. Then there is no Start.

A few entries give little evidence: for these the likelier of both distributions must be enough.
"""

import math

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import CONSTANT, NORMAL, UNIFORM, Filling, Start

Values = NDArray[np.float64]

_CHANCE = 5.0
"""The standard errors by which a correlation may differ from 0."""

_UNLIKE = 0.02
"""The distance allowed between a distribution function and the fitted one, in addition to chance. For a
normal one cut at two deviations it is 0.016 from a normal one, for a uniform one 0.06."""

_SAMPLE = 1 << 14
"""The entries that are compared with a distribution function, and"""
_ROWS = 256
"""the rows of a matrix that are compared with each other, and"""
_LIMIT = 1 << 22
"""the most entries for all other checks except equality, which bounds time and memory."""


def measure(
    theta: NDArray[np.float32], other: NDArray[np.float32], layout: Layout, seed: int
) -> Start | None:
    """Return the Start whose model under `seed` is as good as `theta`; None if the module has own weights.

    theta and other, float32 [P + B], are the module's first models under two seeds.
    """
    fillings = []
    seen: set[bytes] = set()
    for tensor in layout.tensors:
        place = slice(tensor.start, tensor.stop)
        filling = _filling(theta[place], other[place], tensor.shape)
        octets = theta[place].tobytes()
        if filling is None or (filling.kind != CONSTANT and octets in seen):
            return None
        seen.add(octets)
        fillings.append(filling)
    return Start(seed, tuple(fillings))


def _filling(x: NDArray[np.float32], y: NDArray[np.float32], shape: tuple[int, ...]) -> Filling | None:
    """Return the filling of a tensor with entries x and y under two seeds; None for own weights."""
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return None
    if not x.size or ((x == x[0]).all() and (y == x[0]).all()):
        return Filling(CONSTANT, float(x[0]) if x.size else 0.0, 0.0)
    if _has_equal_entries(x, y):
        return None
    pair = np.stack((x, y))[:, :: -(-x.size // _LIMIT)].astype(np.float64)
    centre, deviation = _moments(pair)
    if _is_correlated(pair - centre) or _is_structured(x.reshape(shape), centre, deviation):
        return None
    fit = _fit_distribution(pair, centre, deviation)
    return fit if _distance(pair, fit) <= _UNLIKE + 2 / math.sqrt(min(pair.size, _SAMPLE)) else None


def _moments(values: Values) -> tuple[float, float]:
    """(mean, standard deviation around it). A mean that may be 0 counts as 0."""
    mean, deviation = float(values.mean()), float(values.std())
    if abs(mean) <= 4 * deviation / math.sqrt(values.size):
        return 0.0, math.sqrt(float(np.square(values).mean()))
    return mean, deviation


def _has_equal_entries(x: NDArray[np.float32], y: NDArray[np.float32]) -> bool:
    """Whether entries are equal under both seeds, except a few of very many by chance."""
    alike = x[x == y]
    return bool(alike.size > x.size >> 16 or np.unique(alike).size < alike.size)


def _is_correlated(pair: Values) -> bool:
    """Whether entries correlate between both seeds, in value or in magnitude."""
    return any(
        abs(_correlation(*arrays)) > _CHANCE / math.sqrt(pair.shape[1]) for arrays in (pair, np.abs(pair))
    )


def _correlation(x: Values, y: Values) -> float:
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale else 0.0


def _is_structured(tensor: NDArray[np.float32], centre: float, deviation: float) -> bool:
    """Whether a matrix's rows (or columns, if fewer) are less or more similar than by chance.

    For independent entries of variance 1, the product of two rows of k entries has the mean square k. For
    orthogonal rows it is 0.
    """
    if tensor.ndim < 2:
        return False
    matrix = tensor.reshape(len(tensor), -1)
    rows = (matrix if len(matrix) <= matrix.shape[1] else matrix.T)[:_ROWS]
    pairs = len(rows) * (len(rows) - 1) // 2
    if not pairs:
        return False
    standard = (rows.astype(np.float64) - centre) / deviation
    products = (standard @ standard.T)[np.triu_indices(len(rows), 1)]
    energy = float(np.square(products).mean() / len(rows.T))
    return energy < 1e-6 or abs(energy - 1) > 2 * _CHANCE * math.sqrt(2 / pairs)


def _fit_distribution(pair: Values, centre: float, deviation: float) -> Filling:
    """Return the uniform or the normal distribution, whichever makes the entries likelier."""
    low, high = _bounds(pair)
    # The mean of -log density: of the uniform one over its width, and of the normal one at its own entropy.
    if math.log(high - low) < math.log(deviation * math.sqrt(2 * math.pi * math.e)):
        return Filling(UNIFORM, _single(low), _single(high))
    return Filling(NORMAL, _single(centre), _single(deviation))


def _bounds(values: Values) -> tuple[float, float]:
    """The bounds of a uniform distribution: the extremes, widened by their average gap."""
    low, high, n = float(values.min()), float(values.max()), values.size
    if low < 0 < high and abs(low + high) <= 8 * (high - low) / n:
        bound = max(-low, high) * (n + 1) / n
        return -bound, bound
    missed = (high - low) / (n - 1)
    return low - missed, high + missed


def _distance(pair: Values, fit: Filling) -> float:
    """The Kolmogorov-Smirnov distance of the two distribution functions, at some entries."""
    values = np.sort(pair.ravel()[:: -(-pair.size // _SAMPLE)])
    if fit.kind == UNIFORM:
        expected = (values - fit.a) / (fit.b - fit.a)
    else:
        scaled = (values - fit.a) / (fit.b * math.sqrt(2))
        expected = np.array([0.5 + 0.5 * math.erf(z) for z in scaled])
    steps = np.arange(len(values) + 1) / len(values)
    return float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))


def _single(value: float) -> float:
    return float(np.float32(value))
