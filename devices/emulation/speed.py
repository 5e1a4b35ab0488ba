"""The speed of an emulated device."""

import math
from dataclasses import dataclass

import numpy as np

from edgeflock.devices.emulation.config import DeviceClass, load_profile


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """The speed of a class of devices, in seconds and bytes per second. Infinite rates take no time."""

    step: float
    spread: float
    exponential: bool
    uplink: float
    downlink: float
    latency: float
    sample: float = 0.0
    """Additional step time for each sample."""

    @classmethod
    def from_class(cls, kind: DeviceClass, flops: int) -> "DeviceSpeed":
        """Return the speed of `kind` for a model whose step takes `flops` floating-point operations."""
        profile = load_profile(kind.profile) if kind.profile else None

        def get(key: str, default: float) -> float:
            own = getattr(kind, key)
            value = own if own is not None else getattr(profile, key) if profile else default
            return float(value)

        if kind.step_ms is not None:
            step_ms = kind.step_ms
        else:
            assert profile is not None, "a class has a profile or a step time"
            step_ms = profile.overhead_ms + flops / profile.gflops / 1e6
        return cls(
            step_ms / 1e3,
            get("spread", 0.0),
            kind.timing == "exponential",
            get("uplink_mbps", math.inf) * 125e3,
            get("downlink_mbps", math.inf) * 125e3,
            get("latency_ms", 0.0) / 1e3,
            kind.sample_ms / 1e3,
        )

    def draw(self, random: np.random.Generator, samples: float = 0.0) -> float:
        """Draw the time of one step on this number of samples."""
        mean = self.step + self.sample * samples
        if self.exponential:
            return float(random.exponential(mean))
        variance = math.log1p(self.spread**2)
        return float(random.lognormal(math.log(mean) - variance / 2, math.sqrt(variance)))
