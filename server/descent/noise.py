"""Noise that makes steps differentially private: DP-FTRL with tree aggregation.

P. Kairouz et al., "Practical and private (deep) learning without sampling or shuffling", ICML 2021,
arXiv:2103.00039, algorithm 1, with J. Honaker's estimate of each subtree from below (2015). The sum of the
first t steps has the noise N(t). Step t gets N(t) - N(t - 1), so what follows depends on noisy sums alone.

The noise of a node is a function of a secret key and of a digest of all sums up to its last step. A replay
makes the same noise. Another history, as after a restored backup, gets noise that is independent of it.
"""

import hashlib

import msgpack
import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.regime import StepMethod
from edgeflock.server.descent.step import Index, Step

Vector = NDArray[np.float32]

_DIGEST = 32
_MARGIN = 1 - 1e-6
"""Keeps the norm of a scaled update below its bound in spite of rounding."""


def bound_norm(step: Step, bound: float) -> Step:
    """Scale `step` down until its norm is at most `bound`. It counts as one sample, whatever it says."""
    delta = step.delta
    norm = float(np.linalg.norm(delta.astype(np.float64)))
    if norm > bound:
        delta = delta * np.float32(bound * _MARGIN / norm)
    return Step(step.base, step.indices, delta, samples=1, time=step.time)


class TreeNoise:
    """Adds noise to sums of updates. A tree has `method.tree` steps; then the next one begins."""

    def __init__(self, method: StepMethod, size: int, version: int, state: bytes = b"") -> None:
        """`size` is P. `version` is that of the last step. `state` is what `pack` returned.

        A tree that `method` ended since then is not continued. Raises ValueError if `state` is invalid.
        """
        self._deviation = np.float32(method.noise * method.bound)
        self._steps, self._key, self._size = method.tree, bytes.fromhex(method.noise_key), size
        self._ended = method.trees_ended
        self.begun = 0
        """The version after the last step before this tree: later updates are part of it, or of the next."""
        self._digest = bytes(_DIGEST)
        self._leaves: list[bytes] = []
        """The digest after each step of this tree."""
        self._subtrees: list[tuple[int, Vector]] = []
        """(height, noise) of the complete subtrees, of which N(t) is the sum."""
        if state:
            try:
                ended, self.begun, self._digest, leaves = msgpack.unpackb(state)
                if ended != method.trees_ended:
                    self.begin_tree(version)
                    leaves = []
                for leaf in leaves:
                    self._grow(leaf)
            except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
                raise ValueError(f"the state of the noise cannot be read: {error}") from error

    def pack(self) -> bytes:
        """Encode the state. It has no noise, only what the noise follows from with the key."""
        return bytes(msgpack.packb([self._ended, self.begun, self._digest, self._leaves]))

    @property
    def is_fresh(self) -> bool:
        """Whether the tree has no steps yet."""
        return not self._leaves

    def end_tree(self, version: int) -> None:
        """End the tree before its last step, after `version`. The method counts this as well."""
        self._ended += 1
        self.begin_tree(version)

    def begin_tree(self, version: int) -> None:
        """Begin a new tree, of the steps after `version`."""
        self.begun, self._leaves, self._subtrees = version, [], []

    def add(self, total: Vector, version: int, where: Index = slice(None)) -> Vector:
        """Return `total`, the sum of a step's updates (float32 [P]), with its noise.

        `version` is the one that the step makes. Only the entries of `where` get noise: the others are 0 for
        public reasons. This is for trees of one step, as later steps of a tree take back some of its noise.
        """
        assert isinstance(where, slice) or self._steps == 1, "the steps of a tree share their entries"
        history = self._digest + self.begun.to_bytes(8, "little") + total.tobytes()
        self._digest = hashlib.blake2b(history, key=self._key, digest_size=_DIGEST).digest()
        before = self._sum()
        self._grow(self._digest)
        noisy = total.copy()
        noisy[where] += self._deviation * (self._sum() - before)[where]
        if len(self._leaves) == self._steps:
            self.begin_tree(version)
        return noisy

    def _sum(self) -> Vector:
        total = np.zeros(self._size, np.float32)
        for _, noise in self._subtrees:
            total += noise
        return total

    def _grow(self, leaf: bytes) -> None:
        """Add a leaf. Two subtrees of one height make one of the next height.

        Its noise is estimated twice: by its own node, of variance 1, and by the sum of the two, of variance
        2 v. With the best weights the variance is 2 v / (1 + 2 v).
        """
        self._leaves.append(leaf)
        height, variance, noise = 0, 1.0, self._draw(leaf, 0)
        while self._subtrees and self._subtrees[-1][0] == height:
            _, left = self._subtrees.pop()
            height, weight = height + 1, 2 * variance / (1 + 2 * variance)
            own = np.float32(weight) * self._draw(leaf, height)
            noise = own + np.float32(1 - weight) * (left + noise)
            variance = weight
        self._subtrees.append((height, noise))

    def _draw(self, leaf: bytes, height: int) -> Vector:
        """Return standard normal numbers of a node, float32 [P]."""
        octets = hashlib.blake2b(leaf, key=self._key, digest_size=16, salt=height.to_bytes(2, "little"))
        words = np.random.Philox(key=np.frombuffer(octets.digest(), "<u8"))
        return np.random.Generator(words).standard_normal(self._size).astype(np.float32)
