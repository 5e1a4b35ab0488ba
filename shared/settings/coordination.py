"""[coordination] and [defence]: how updates are applied, and which are not."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edgeflock.shared.secure_sum.messages import MAX_DEVICES
from edgeflock.shared.settings.choices import one_of_tables
from edgeflock.shared.settings.modes import DEFAULT, Mode, traits_of
from edgeflock.shared.settings.settings import Section

MIN_RATE, MAX_RATE = 1e-12, 1e6
"""Learning rates beyond these change nothing in float32, or make the model infinite within a few updates."""


class CoordinationSettings(Section):
    """How updates are applied."""

    rule: Annotated[str, one_of_tables("coordination.rule")] = "adacomp"
    """how staleness lowers an update's weight; adacomp: 1 / number of updates that changed the parameter
    since; tau: 1 / number of versions since; sqrt: 1 / root of that plus 1; none: not at all; elastic: for
    that mode"""
    learning_rate: Annotated[float, Field(ge=MIN_RATE, le=MAX_RATE, allow_inf_nan=False)] = 0.05
    """learning rate of the server; not set: 0.01 if devices use adafactor, more with a cohort of fewer than
    10 in async, 0.03 with model.lora; 1 for a model of arrays, else 0.05"""
    window: Annotated[int, Field(ge=2, le=65536)] = 256
    """number of the latest versions from which an update may start; an older one is refused"""
    mode: Annotated[str, one_of_tables("coordination.mode")] = DEFAULT
    """async: each update makes a step; buffer: several updates make a step; rounds: the updates of all
    devices make one step, weighted by samples; cohort: as rounds, of a few devices at a time; tasks: as
    rounds, with an update of each data shard; private: as cohort, and the server learns the sum alone;
    elastic: devices keep their own parameters and exchange with the model, their centre"""
    buffer: Annotated[int, Field(ge=1, le=65536)] = 10
    """for buffer: number of updates that make a step; no device waits for it"""
    moving_rate: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """for elastic: in an exchange, a device's parameters and the model each move by this part of their
    difference"""
    chunk: Annotated[int, Field(ge=0)] = 100_000
    """for elastic: number of parameters that are exchanged at a time while training goes on; 0: all, and
    training waits"""
    quorum: Annotated[int, Field(ge=0)] = 0
    """for rounds and cohort: number of updates that end a round; 0: one of each device that takes part; for
    private: fewest devices of a sum; not set: 3"""
    cohort: Annotated[int, Field(ge=0, le=65536)] = 0
    """for async: number of devices that train at a time, while the others wait for their turn; 0: all; for
    cohort and private: those of a round; not set: 20, for private 100"""
    cohort_rounds: Annotated[int, Field(ge=1)] = 5
    """with a cohort: rounds in a row that a device takes part in before it waits again; in async: updates"""
    deadline: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    """for rounds, cohort and tasks: seconds after its first update when a round ends in any case; for
    private: seconds that each step of a round waits for devices; for async with a cohort: seconds without an
    update after which a device's turn ends"""
    threshold: Annotated[float, Field(ge=0.5, lt=1)] = 2 / 3
    """for private: more than this part of a device's neighbours in a round must stay; 2/3 holds against a
    server that lies, 0.5 against one that follows the protocol"""
    bits: Annotated[int, Field(ge=2, le=16)] = 4
    """for private: bits of an entry that a device adds to a sum, the sign included"""
    aggregate: Annotated[str, one_of_tables("coordination.aggregate")] = "mean"
    """for rounds, cohort and tasks: how updates become one: mean; median, which tolerates bad ones;
    for private: how the means of groups do; or package.module:name"""
    groups: Annotated[int, Field(ge=1, le=64)] = 1
    """for private: groups of a round, each with a secure sum of its own, which coordination.aggregate
    compares; 1, or 3 or more; a median bears bad devices in fewer than half of them"""
    gate: Literal["none", "asp"] = "none"
    """none: no device waits; asp: a device waits while another's copy of the model lacks more than
    coordination.bound of its updates"""
    bound: Annotated[int, Field(ge=0, le=65536)] = 4
    """for a gate: number of updates of one device"""
    tasks: Annotated[int, Field(ge=0)] = 0
    """for tasks: shards of the data that a device computes in a round, at most; not set: 1"""
    distinct: Annotated[int, Field(ge=0)] = 0
    """for tasks: number of different shards whose results end a round; 0: all that connected devices hold"""
    average: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 8.0
    """eta of the averaged model that is evaluated and served; a higher eta forgets old versions sooner; 0: no
    averaging"""
    base_batch: Annotated[int, Field(ge=0)] = 0
    """B: an update of b samples counts b / B times; 0: all updates count alike, in rounds by their samples"""

    @property
    def traits(self) -> Mode:
        return traits_of(self.mode)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, settings: object) -> object:
        """Add the mode's own defaults."""
        return (
            {**traits_of(settings.get("mode")).defaults, **settings}
            if isinstance(settings, dict)
            else settings
        )

    @model_validator(mode="after")
    def _check_cohort(self) -> Self:
        if self.traits.rounds and self.quorum > self.cohort > 0:
            raise ValueError(
                f"quorum = {self.quorum} is more than cohort = {self.cohort}, the devices of a round; "
                "lower quorum"
            )
        if self.groups == 2:
            raise ValueError("groups = 2: every aggregate of two sums lets a bad one through; set 3 or more")
        if self.traits.private and self.quorum * self.groups > self.cohort:
            raise ValueError(
                f"groups = {self.groups} of quorum = {self.quorum} devices or more are more than cohort = "
                f"{self.cohort}, the devices of a round; lower groups or quorum"
            )
        if self.traits.private and not 2 <= self.quorum <= self.cohort <= MAX_DEVICES:
            raise ValueError(
                f"quorum = {self.quorum} and cohort = {self.cohort}: a sum is of 2 devices at least, and of "
                f"{MAX_DEVICES} at most"
            )
        return self


class DefenceSettings(Section):
    """Defence against updates of broken or hostile devices."""

    mode: Annotated[str, one_of_tables("defence.mode")] = "none"
    """none: every update counts; clip: one that is much larger than usual counts as a usual one; score: as
    clip, and updates of devices that disagree with the server's own gradient, on a separate part of
    model.data, do not count"""
