"""The first model of a run as a function of a seed: devices compute it instead of a download.

J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011:
Philox4x64-10 turns a key and a counter into 64-bit words. Each value comes from them by integer operations
and two rounding float32 operations, without a logarithm or a sine: every machine gets the same bits.
docs/protocol.md describes each step, for other implementations.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.errors import Malformed
from edgeflock.shared.model.layout import Layout

CONSTANT, UNIFORM, NORMAL = range(3)

_WORDS = {UNIFORM: 1, NORMAL: 3}
"""The number of 64-bit words for a value."""

_BLOCK = 1 << 16
"""The values made at a time: the words of a normal value take six times its memory."""

_LARGEST_SEED = (1 << 63) - 1

_DIGEST = 32


class Filling(NamedTuple):
    """The distribution that fills a tensor. a and b are float32 numbers."""

    kind: int
    """CONSTANT: a, and b is 0. UNIFORM: between a and b. NORMAL: with mean a and standard deviation b."""
    a: float
    b: float

    @property
    def rms(self) -> float:
        """The root mean square of the distribution."""
        a, b = self.a, self.b
        return math.sqrt((a * a + a * b + b * b) / 3) if self.kind == UNIFORM else math.hypot(a, b)


class Start(NamedTuple):
    """A first model: tensors[t] defines the filling of tensor t of the layout."""

    seed: int
    """0 to 2^63 - 1."""
    tensors: tuple[Filling, ...]

    @classmethod
    def from_msgpack(cls, value: object, name: str = "start") -> "Start":
        """Parse [seed, [[kind, a, b], ...]] as unpacked from msgpack. Raises Malformed."""
        if type(value) is not list or len(value) != 2 or type(value[1]) is not list:
            raise Malformed(f"{name} must be [seed, [[kind, a, b], ...]]")
        seed, fillings = value
        if type(seed) is not int or not 0 <= seed <= _LARGEST_SEED:
            raise Malformed(f"{name} must have a seed of 0 to 2^63 - 1")
        return cls(seed, tuple(_filling(filling, f"{name}[{t}]") for t, filling in enumerate(fillings)))


def generate(start: Start, layout: Layout) -> NDArray[np.float32]:
    """Return the first model, float32 [P + B].

    Raises Malformed if `start` does not have a filling for each tensor of `layout`, or overflows float32.
    """
    if len(start.tensors) != len(layout.tensors):
        raise Malformed(f"start has {len(start.tensors)} tensors and the layout {len(layout.tensors)}")
    theta = np.empty(layout.size, np.float32)
    for number, (filling, tensor) in enumerate(zip(start.tensors, layout.tensors, strict=True)):
        _fill(theta[tensor.start : tensor.stop], filling, start.seed, number)
    if not np.isfinite(theta).all():
        raise Malformed("start has numbers so large that the model overflows float32")
    return theta


def _fill(values: NDArray[np.float32], filling: Filling, seed: int, tensor: int) -> None:
    a, b = np.float32(filling.a), np.float32(filling.b)
    if filling.kind == CONSTANT:
        values[:] = a
        return
    words = np.random.Philox(counter=0, key=np.array([seed, tensor], np.uint64))
    with np.errstate(over="ignore", invalid="ignore"):  # `generate` refuses infinity and NaN
        for first in range(0, values.size, _BLOCK):
            some = values[first : first + _BLOCK]
            raw = words.random_raw(_WORDS[filling.kind] * some.size)
            some[:] = a + ((b - a) * _uniform(raw) if filling.kind == UNIFORM else b * _normal(raw))


def _uniform(raw: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Values in [0, 1), exact: the upper 24 bits of each word."""
    return (raw >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


def _normal(raw: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Values of mean 0 and variance 1 (less 2^-32), within 6 of 0, exact.

    Each is made of three words, as twelve 16-bit numbers. Their sum has the mean 12 * 65535 / 2 and the
    variance 2^32 - 1. It is below 2^24, so float32 sums are exact in any order.
    """
    sums = raw.view(np.uint16).reshape(-1, 12).astype(np.float32) @ np.ones(12, np.float32)
    return (sums - np.float32(6 * 65535)) * np.float32(2**-16)


def _filling(value: object, name: str) -> Filling:
    if type(value) is not list or len(value) != 3 or type(value[0]) is not int:
        raise Malformed(f"{name} must be [kind, a, b]")
    kind, a, b = value[0], *(_single(number, name) for number in value[1:])
    if kind not in (CONSTANT, UNIFORM, NORMAL):
        raise Malformed(f"{name} is of kind {kind}; known are 0 to 2")
    if kind == CONSTANT and b != 0:
        raise Malformed(f"{name} is constant, so b must be 0, not {b:g}")
    if kind == UNIFORM and a > b:
        raise Malformed(f"{name} is uniform from {a:g} up to {b:g}, which is less")
    if kind == NORMAL and b < 0:
        raise Malformed(f"{name} has a standard deviation below 0: {b:g}")
    return Filling(kind, a, b)


def _single(value: object, name: str) -> float:
    """Round a number to float32. Raises Malformed."""
    if type(value) is not float and type(value) is not int:
        raise Malformed(f"{name} must have numbers for a and b")
    with np.errstate(over="ignore"):
        single = float(np.float32(value))
    if not math.isfinite(single):
        raise Malformed(f"{name} must have finite float32 numbers for a and b")
    return single


class Weights(NamedTuple):
    """A file with the first model (codecs/packed.py): its identity, and whether to load it."""

    digest: bytes
    """SHA-256 of the file, 32 bytes."""
    size: int
    """The size of the file, in bytes."""
    mode: int
    """The value mode of its numbers."""
    load: bool
    """Whether to load it if it is not on the device: false if the whole current model is shorter."""

    @classmethod
    def from_msgpack(cls, value: object, name: str = "weights") -> "Weights":
        """Parse [digest, size, mode, load] as unpacked from msgpack. Raises Malformed for any other value."""
        if type(value) is not list or [type(field) for field in value] != [bytes, int, int, bool]:
            raise Malformed(f"{name} must be [digest, size, mode, load]")
        weights = cls(*value)
        if len(weights.digest) != _DIGEST or weights.size < 0:
            raise Malformed(f"{name} must have a digest of {_DIGEST} bytes, and no size below 0")
        return weights
