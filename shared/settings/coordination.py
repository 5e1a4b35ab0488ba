"""[coordination] and [defence]: how updates are applied, and which are not."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from edgeflock.shared.settings.choices import one_of_tables
from edgeflock.shared.settings.settings import Section

MIN_RATE, MAX_RATE = 1e-12, 1e6
"""Learning rates beyond these change nothing in float32, or make the model infinite within a few updates."""

ELASTIC = "elastic"
"""The mode, and the rule of its updates."""


class CoordinationSettings(Section):
    """How updates are applied."""

    rule: Annotated[str, one_of_tables("coordination.rule")] = "adacomp"
    learning_rate: Annotated[float, Field(ge=MIN_RATE, le=MAX_RATE, allow_inf_nan=False)] = 0.05
    window: Annotated[int, Field(ge=2, le=65536)] = Field(
        256, description="largest age of an update's base, in versions"
    )
    mode: Annotated[str, one_of_tables("coordination.mode")] = Field(
        "async",
        description="async: each update makes a step; rounds: the updates of all devices make one step, "
        "weighted "
        "by samples; elastic: devices keep their own parameters and exchange with the model, their "
        "centre; buffer: several updates make a step",
    )
    buffer: Annotated[int, Field(ge=1, le=65536)] = Field(
        10, description="for buffer: the number of updates that make a step; no device waits for it"
    )
    moving_rate: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1,
        description="for elastic: the part of its distance to the centre by which a device and the "
        "centre move",
    )
    chunk: Annotated[int, Field(ge=0)] = Field(
        100_000,
        description="for elastic: parameters exchanged together while the rest trains; 0: all at once",
    )
    quorum: Annotated[int, Field(ge=0)] = Field(
        0, description="for rounds: updates that end a round; 0: one of each connected device"
    )
    cohort: Annotated[int, Field(ge=0, le=65536)] = Field(
        0,
        description="for rounds: devices that take part in a round while the others wait for their turn; "
        "0: all",
    )
    cohort_rounds: Annotated[int, Field(ge=1)] = Field(
        5, description="for a cohort: rounds in a row that a device takes part in before another replaces it"
    )
    deadline: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        30.0, description="for rounds: seconds from a round's first update to its end in any case"
    )
    aggregate: Annotated[str, one_of_tables("coordination.aggregate")] = Field(
        "mean",
        description="for rounds: mean; median, trimmed and krum tolerate some bad updates",
    )
    gate: Annotated[str, one_of_tables("coordination.gate")] = Field(
        "",
        description="ssp: no device is more than bound updates ahead; asp: no device's copy of the model "
        "is more "
        "than bound updates behind; empty: no gate",
    )
    bound: Annotated[int, Field(ge=0, le=65536)] = Field(
        4, description="for a gate, in updates of one device"
    )
    tasks: Annotated[int, Field(ge=0)] = Field(
        0,
        description="for rounds: the most shards of its data that a device computes in a round; 0: no shards",
    )
    order: Annotated[str, one_of_tables("coordination.order")] = Field(
        "adaptive",
        description="order in which devices compute their shards: cyclic, staircase, random, adaptive",
    )
    distinct: Annotated[int, Field(ge=0)] = Field(
        0, description="for rounds of tasks: shards that end a round; 0: all that any connected device holds"
    )
    average: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        8.0, description="eta of the averaged model that is evaluated and served; 0: no averaging"
    )
    base_batch: Annotated[int, Field(ge=0)] = Field(
        0, description="B: an update of b samples has the weight b / B; 0: all updates have the same weight"
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, settings: object) -> object:
        """Set the rule of a mode: elastic averaging weighs by alpha alone, buffers as in FedBuff."""
        usual = {ELASTIC: ELASTIC, "buffer": "sqrt"}
        rule = usual.get(str(settings.get("mode"))) if isinstance(settings, dict) else None
        return {"rule": rule, **settings} if isinstance(settings, dict) and rule is not None else settings

    @model_validator(mode="after")
    def _check_cohort(self) -> Self:
        if self.quorum > self.cohort > 0:
            raise ValueError(
                f"quorum = {self.quorum} is more than cohort = {self.cohort}, the devices of a round; "
                "lower quorum"
            )
        return self


class DefenceSettings(Section):
    """Defence against updates of broken or hostile devices."""

    mode: Annotated[str, one_of_tables("defence.mode")] = Field(
        "none",
        description="clip: limits each update to the usual norm; score: also rejects updates of devices that "
        "disagree with the server's own gradient, on a separate part of model.data",
    )
    refresh: Annotated[int, Field(ge=1)] = Field(
        20, description="for score: updates from one gradient of the server's own to the next"
    )
