"""DP-SGD on a device: M. Abadi et al., "Deep learning with differential privacy", CCS 2016, algorithm 1.

    g = (sum_i g_i min(1, C / |g_i|) + N(0, (z C)^2)) / B

over the examples i of a Poisson sample of B on average. The server cannot tell whether an example is there.
"""

import math
import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgeflock.client.data import Batches, SampledBatches
from edgeflock.client.training.selector import LocalSteps
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Inputs, rows
from edgeflock.shared.model.gradient import Gradient
from edgeflock.shared.protocol.messages import Welcome

Compute = Callable[[NDArray[np.float32], Inputs, NDArray[np.generic]], Gradient]


class PrivateSteps:
    """The steps of a device. Its noise and its samples are the operating system's random numbers.

    The server sees the bare noise where gradients are 0, and must not be able to compute the rest from it.
    """

    def __init__(self, welcome: Welcome, batches: Batches) -> None:
        """Raise ConfigError if `batches` cannot be sampled."""
        if not isinstance(batches, SampledBatches):
            raise ConfigError(
                "this run hides single examples (privacy.mode = 'local'), so each must be in a batch with a "
                "known chance, which a stream or an environment has not; use stored data"
            )
        self._welcome, self._batches = welcome, batches

    def take(self, theta: NDArray[np.float32], compute: Compute) -> LocalSteps:
        """Return a step from theta. `compute` gets one example at a time, so any backend will do.

        It reports the usual number of samples, since the number of a batch depends on the data.
        """
        welcome = self._welcome
        x, y = self._batches.sample(welcome.batch, welcome.examples)
        total, losses = np.zeros(0, np.float32), []
        for i in range(len(y)):
            loss, gradient, *_ = compute(theta, rows(x, slice(i, i + 1)), y[i : i + 1])
            norm = float(np.linalg.norm(gradient.astype(np.float64)))
            if math.isfinite(norm):
                losses.append(loss)
                part = gradient * np.float32(min(1.0, welcome.clip / max(norm, 1e-30)))
                total = total + part if total.size else part
        noisy = _draw_normal(theta.size) * (welcome.noise * welcome.clip)
        noisy[: total.size] += total
        mean = float(np.mean(losses)) if losses else math.nan
        direction = (noisy / welcome.batch).astype(np.float32)
        return LocalSteps(mean, direction, np.zeros(0, np.float32), welcome.batch)


def _draw_normal(size: int) -> NDArray[np.float64]:
    """Return standard normal numbers, by the method of G. Box and M. Muller (1958)."""
    words = np.frombuffer(os.urandom(16 * -(-size // 2)), "<u8").reshape(2, -1)
    radius, angle = ((words >> np.uint64(11)) + 0.5) / 2**53
    radius, angle = np.sqrt(-2 * np.log(radius)), 2 * np.pi * angle
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:size]
