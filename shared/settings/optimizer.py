"""[optimizer]: how the server takes a step with a weighed gradient."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edgeflock.shared.settings.choices import one_of_tables
from edgeflock.shared.settings.settings import Section

_LONGEST_MEMORY = 0.9999999
"""Beyond it a beta is 1 in float32."""


class OptimizerSettings(Section):
    """How the server steps, after coordination.rule has weighed an update (docs/optimizers.md)."""

    kind: Annotated[str, one_of_tables("optimizer.kind")] = Field(
        "sgd", description="sgd, momentum, nesterov, adam, adamw, adagrad; or package.module:name"
    )
    beta1: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.9, description="the momentum; for adam and adamw, the decay of the mean"
    )
    beta2: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.999, description="for adam and adamw: the decay of the mean of squares"
    )
    epsilon: Annotated[float, Field(ge=1e-12, le=1)] = Field(
        1e-8, description="for adam, adamw and adagrad: added to the root"
    )
    weight_decay: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0,
        description="part of a parameter that is added to its gradient; for adamw, decoupled from the "
        "gradient",
    )
    clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="the largest norm of an update's gradient; 0: no limit"
    )
    schedule: Annotated[str, one_of_tables("optimizer.schedule")] = Field(
        "constant",
        description="of the learning rate: constant, step, cosine, plateau; or package.module:name",
    )
    schedule_unit: Literal["updates", "seconds"] = Field(
        "updates", description="the unit of warmup and period"
    )
    warmup: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="the time in which the learning rate rises"
    )
    period: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0,
        description="for step: the time from one fall to the next; for cosine: the time to the end, 0: "
        "that of "
        "the run",
    )
    factor: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.5, description="for step and plateau: the factor of the learning rate at each fall"
    )
    min_factor: Annotated[float, Field(ge=0, le=1)] = Field(
        0.01, description="the smallest part of the learning rate that a schedule falls to"
    )
    patience: Annotated[int, Field(ge=1)] = Field(
        10, description="for plateau: evaluations without improvement before a fall"
    )

    @model_validator(mode="after")
    def _check_beta1(self) -> Self:
        if self.beta1 > _LONGEST_MEMORY:
            raise ValueError(
                f"beta1 = {self.beta1!r} is 1 in float32, so the mean would never change; set "
                f"{_LONGEST_MEMORY} at most"
            )
        return self

    @model_validator(mode="after")
    def _check_period(self) -> Self:
        if self.schedule == "step" and not self.period:
            raise ValueError(
                "schedule = 'step' cannot fall with period = 0: set period to the number of "
                f"{self.schedule_unit} between two falls"
            )
        return self

    def end(self, updates: int) -> float:
        """Return the period in a run of `updates` updates (0: endless).

        That of cosine ends with the run unless it is set. Raises ValueError if it never ends, or ends before
        it begins.
        """
        if self.schedule != "cosine":
            return self.period
        key = "optimizer.period" if self.period else "run.updates"
        end = self.period or (float(updates) if self.schedule_unit == "updates" else 0.0)
        if not end:
            raise ValueError(
                "optimizer.schedule = 'cosine' cannot end with optimizer.period = 0: set period to its "
                f"number of {self.schedule_unit}, or set run.updates and leave schedule_unit at 'updates'"
            )
        if self.warmup >= end:
            raise ValueError(
                f"optimizer.warmup = {self.warmup:g} is no shorter than {key} = {end:g}, which includes "
                "it in "
                f'schedule = "cosine"; raise {key}'
            )
        return end
