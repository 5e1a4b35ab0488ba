"""[optimizer]: how the server takes a step with a weighed gradient."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edgeflock.shared.settings.choices import one_of_tables
from edgeflock.shared.settings.settings import Section

_LONGEST_MEMORY = 0.9999999
"""Beyond it a beta is 1 in float32."""


class OptimizerSettings(Section):
    """How the server steps, after coordination.rule has weighed an update (docs/optimizers.md)."""

    kind: Annotated[str, one_of_tables("optimizer.kind")] = "sgd"
    """how the server steps: sgd, momentum, nesterov, adam, adamw; or package.module:name"""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """part of the momentum that is left after a step; for adam and adamw: of the mean of gradients"""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """for adam and adamw: part of the mean of squared gradients that is left after a step"""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """pulls parameters to 0: this part of each changed parameter is added to its gradient; adamw: times the
    learning rate, subtracted from the parameter; 0: no decay"""
    clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """a longer gradient of an update is shortened to this norm; 0: no limit"""
    schedule: Annotated[str, one_of_tables("optimizer.schedule")] = "constant"
    """how the learning rate changes: constant, cosine; or package.module:name"""
    schedule_unit: Literal["updates", "seconds"] = "updates"
    """unit of optimizer.warmup and optimizer.period: updates, or seconds since the first update"""
    warmup: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """time, in optimizer.schedule_unit, in which the learning rate rises to its full value; 0: no time"""
    period: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """for cosine: time, in optimizer.schedule_unit, to the end of its fall; 0: end.updates"""

    @model_validator(mode="after")
    def _check_beta1(self) -> Self:
        if self.beta1 > _LONGEST_MEMORY:
            raise ValueError(
                f"beta1 = {self.beta1!r} is 1 in float32, so the mean would never change; set "
                f"{_LONGEST_MEMORY} at most"
            )
        return self

    def end(self, updates: int) -> float:
        """Return the period in a run of `updates` updates (0: endless).

        That of cosine ends with the run unless it is set. Raises ValueError if it never ends, or ends before
        it begins.
        """
        if self.schedule != "cosine":
            return self.period
        key = "optimizer.period" if self.period else "end.updates"
        end = self.period or (float(updates) if self.schedule_unit == "updates" else 0.0)
        if not end:
            raise ValueError(
                "optimizer.schedule = 'cosine' cannot end with optimizer.period = 0: set period to its "
                f"number of {self.schedule_unit}, or set end.updates and leave schedule_unit at 'updates'"
            )
        if self.warmup >= end:
            raise ValueError(
                f"optimizer.warmup = {self.warmup:g} is no shorter than {key} = {end:g}, which includes "
                f'it in schedule = "cosine"; raise {key}'
            )
        return end
