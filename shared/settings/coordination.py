"""[coordination] and [defence]: how updates count, and which do not."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from edgeflock.shared.settings.choices import one_of_the_ends
from edgeflock.shared.settings.settings import Section

LEAST_RATE, LARGEST_RATE = 1e-12, 1e6
"""Learning rates beyond these change nothing in float32, or make the model infinite within a few updates."""

ELASTIC = "elastic"
"""The way to coordinate, and the rule of its updates."""


class CoordinationSettings(Section):
    """How updates count."""

    rule: Annotated[str, one_of_the_ends("coordination.rule")] = "adacomp"
    learning_rate: Annotated[float, Field(ge=LEAST_RATE, le=LARGEST_RATE, allow_inf_nan=False)] = 0.05
    window: Annotated[int, Field(ge=2, le=65536)] = Field(256, description="versions")
    mode: Annotated[str, one_of_the_ends("coordination.mode")] = Field(
        "async",
        description="rounds: the updates of all devices apply together, by samples; elastic: devices keep "
        "parameters of their own, of which the model is the centre; buffer: several updates make a step",
    )
    buffer: Annotated[int, Field(ge=1, le=65536)] = Field(
        10, description="of buffer: how many updates make a step; nobody waits for it"
    )
    alpha: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="of elastic: part of its distance to the centre that a device gives and takes"
    )
    chunk: Annotated[int, Field(ge=0)] = Field(
        100_000, description="of elastic: parameters exchanged together while the rest trains; 0: all at once"
    )
    quorum: Annotated[int, Field(ge=0)] = Field(
        0, description="of rounds: how many updates end one; 0: one of each connected device"
    )
    cohort: Annotated[int, Field(ge=0, le=65536)] = Field(
        0,
        description="of rounds: how many devices take part in one while others wait for their turn; 0: all",
    )
    turns: Annotated[int, Field(ge=1)] = Field(
        5, description="of a cohort: rounds in a row that a device takes part in before it makes room"
    )
    deadline: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        30.0, description="of rounds: seconds after its first update when one ends in any case"
    )
    aggregate: Annotated[str, one_of_the_ends("coordination.aggregate")] = Field(
        "mean",
        description="of rounds: mean; or median, trimmed, krum, which some bad updates may be in",
    )
    gate: Annotated[str, one_of_the_ends("coordination.gate")] = Field(
        "", description="ssp: no device more than bound updates ahead; asp: no copy more behind; empty: none"
    )
    bound: Annotated[int, Field(ge=0, le=65536)] = Field(4, description="of a gate, in updates of one device")
    tasks: Annotated[int, Field(ge=0)] = Field(
        0,
        description="of rounds: shards of its data that a device computes at most in one; 0: none are named",
    )
    order: Annotated[str, one_of_the_ends("coordination.order")] = Field(
        "adaptive", description="in which devices compute their shards: cyclic, staircase, random, adaptive"
    )
    distinct: Annotated[int, Field(ge=0)] = Field(
        0, description="of rounds of tasks: how many shards end one; 0: all that any connected device holds"
    )
    average: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        8.0, description="eta of the averaged model that is evaluated and served; 0: none"
    )
    base_batch: Annotated[int, Field(ge=0)] = Field(
        0, description="B: an update of b samples counts b / B times; 0: all alike"
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: object) -> object:
        """A difference to the centre counts by alpha alone, whoever came before; buffers are FedBuff's."""
        usual = {ELASTIC: ELASTIC, "buffer": "sqrt"}
        rule = usual.get(str(given.get("mode"))) if isinstance(given, dict) else None
        return {"rule": rule, **given} if isinstance(given, dict) and rule is not None else given

    @model_validator(mode="after")
    def _fits_the_cohort(self) -> Self:
        if self.quorum > self.cohort > 0:
            raise ValueError(
                f"quorum = {self.quorum} are more than the cohort = {self.cohort} that take part in a round"
            )
        return self


class DefenceSettings(Section):
    """Against updates of broken or hostile devices."""

    mode: Annotated[str, one_of_the_ends("defence.mode")] = Field(
        "none",
        description="clip: none is much larger than what is usual, by how much honest ones differ; score: "
        "none of devices that disagree with the server's own gradient either, for which a part of model.data "
        "is set apart",
    )
    refresh: Annotated[int, Field(ge=1)] = Field(
        20, description="of score: updates from one gradient of the server's own to the next"
    )
