"""AdaComp's server as the paper writes it: Algorithm 2 over Python sets, slow and obvious.

Keeps every version's set of changed parameters for ever, so that it needs no window, no counters, no
snapshots and no care when the rule changes.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.descent.part import Part
from edgeflock.server.descent.regime import Regime


class SlowServer:
    """theta, one float32 after the other, and for each version the parameters that its update changed."""

    def __init__(self, theta: NDArray[np.float32], regime: Regime, buffers: int = 0) -> None:
        """The last `buffers` numbers of theta are running statistics."""
        self.theta = list(theta)
        self.trained = len(theta) - buffers
        self.changed: list[set[int]] = []
        self.regime = regime
        self.start = 0

    @property
    def version(self) -> int:
        return len(self.changed)

    @property
    def bases(self) -> range:
        """The versions that an update may be based on: the latest `window`, none before `start`."""
        return range(max(self.start, self.version - self.regime.window + 1), self.version + 1)

    def sigma(self, k: int, base: int) -> int:
        """Equation (3): in how many of the versions since `base` parameter k was changed."""
        return sum(k in self.changed[u] for u in range(base, self.version))

    def apply(
        self,
        base: int,
        where: Sequence[int],
        delta: Sequence[np.float32],
        statistics: Sequence[np.float32] = (),
    ) -> None:
        """Equations (4) and (5), each quotient, product and difference rounded to float32; and statistics go
        a tenth of the way, or one in as many as the update is versions old."""
        tau = max(1, self.version - base)
        weights = {"tau": 1 / tau, "sqrt": 1 / math.sqrt(1 + self.version - base)}
        rate = self.regime.learning_rate * weights.get(self.regime.rule, 1)
        for k, change in zip(where, delta, strict=True):
            divisor = max(1, self.sigma(k, base)) if self.regime.rule == "adacomp" else 1
            alpha_k = np.float32(np.float32(rate) / np.float32(divisor))
            self.theta[k] = np.float32(self.theta[k] - np.float32(alpha_k * change))
        for k, seen in enumerate(statistics, self.trained):
            away = np.float32(seen - self.theta[k])
            self.theta[k] = np.float32(self.theta[k] + np.float32(away / np.float32(max(10, tau))))
        self.changed.append({k for k, change in zip(where, delta, strict=True) if change != 0})

    def assert_equals(self, parameters: Parameters) -> None:
        """theta, version, and the staleness seen from every admissible base are the same, bit for bit."""
        assert parameters.version == self.version
        assert parameters.theta.dtype == np.float32
        assert parameters.theta.tobytes() == np.array(self.theta, np.float32).tobytes()
        assert parameters.regime == self.regime
        assert parameters.oldest == self.bases[0]
        if self.regime.rule == "adacomp":
            assert isinstance(parameters.store.vectors, Part)
            staleness = parameters.store.vectors.staleness
            assert staleness is not None
            for base in self.bases:
                expected = [self.sigma(k, base) for k in range(self.trained)]
                assert staleness.sigma(slice(None), base).tolist() == expected
