"""[privacy]: differential privacy of the devices' data."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edgeflock.shared.settings.settings import Section


class PrivacySettings(Section):
    """Differential privacy of the devices' data."""

    mode: Literal["none", "server", "local"] = "none"
    """none: off; server: the server adds noise to each step, which hides a whole device; local: each device
    adds noise to its own gradients (DP-SGD), which hides an example, also from the server"""
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """largest norm of a device's update (server), or of an example's gradient (local); a larger one is scaled
    down, in private runs by the device itself"""
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """noise multiplier: standard deviation of the noise / privacy.clip; not set: as much as privacy.epsilon
    needs"""
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """budget: the run ends before a device's epsilon exceeds it; 0: no budget"""
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """delta of the guarantee; not set: 1 / privacy.devices^1.1"""
    devices: Annotated[int, Field(ge=0)] = 0
    """number of devices that may ever take part, for delta"""
    participations: Annotated[int, Field(ge=0, le=1 << 30)] = 0
    """most updates of one device that count; not set: as many as privacy.epsilon allows"""
    tree: Annotated[int, Field(ge=1, le=4096)] = 1
    """for server: number of steps whose noise is one tree, in which a device takes part at most once; best a
    power of two; 1: independent noise at each step"""
    examples: Annotated[int, Field(ge=0)] = 0
    """for local: fewest examples that a device must hold; each batch has an example with the chance
    local.batch / (examples of the device)"""

    @property
    def probability_delta(self) -> float:
        """delta, or its default."""
        return self.delta or self.devices**-1.1

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mode == "none":
            return self
        if not self.noise and not (self.epsilon and self.participations):
            raise ValueError(
                "privacy needs noise, or epsilon together with participations, from which the noise follows"
            )
        if not self.delta and (self.mode == "local" or self.devices < 2):
            raise ValueError(
                "privacy needs delta, well below 1 / number of "
                + ("examples of a device" if self.mode == "local" else "devices; or set privacy.devices")
            )
        if self.mode == "local" and not self.examples:
            raise ValueError("local privacy needs examples, the fewest that a device holds")
        return self
