"""[compression], [downlink] and [injection]: what goes up, what comes down, and what devices share."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgeflock.shared.codecs.sparse import CODINGS as INDEX_CODINGS
from edgeflock.shared.codecs.values import CODINGS as VALUE_CODINGS
from edgeflock.shared.settings.choices import one_of, one_of_the_ends
from edgeflock.shared.settings.settings import Section


class CompressionSettings(Section):
    """What devices send."""

    select: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0,
        description="fraction of the gradient; 0: of P parameters the root of P, up to 16 times as much from "
        "a device that comes rarely or has large batches",
    )
    balance: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="tensors of n entries share the selection as n^balance"
    )
    feedback: Annotated[float, Field(ge=0, le=1)] = Field(
        0.6,
        description="part of what was not sent that is left after 1,000 versions; it is added to the next "
        "gradients",
    )
    threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="send all of a gradient that loses more of |g|^2 by selection; 0: never"
    )
    selection: Literal["largest", "significance"] = Field(
        "largest", description="significance: what would change its parameter by more than a part of it"
    )
    significance: Annotated[float, Field(ge=0, le=1000)] = Field(
        0.01, description="that part: |learning rate * gradient / parameter|"
    )
    significance_decay: bool = Field(
        False, description="divide it by the root of the device's number of updates, as ASP does"
    )
    indices: Annotated[str, one_of(INDEX_CODINGS)] = Field(
        "grid", description="grid: with signs; golomb if other values are asked for"
    )
    values: Annotated[str, one_of(VALUE_CODINGS)] = Field(
        "scale", description='scale: without signs, for indices = "grid"', validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: object) -> object:
        """Whoever names one coding gets one that goes with it, and of whole gradients more than the signs."""
        if not isinstance(given, dict) or {"indices", "values"} <= given.keys():
            return given
        if "values" in given:
            return given if given["values"] == "scale" else {**given, "indices": "golomb"}
        dense = _is_one(given.get("select")) or given.get("selection") == "significance"
        if given.get("indices", "golomb" if dense else "grid") != "grid":
            return {"indices": "golomb", **given, "values": "codebook4"}
        return given


class DownlinkSettings(Section):
    """What devices are sent."""

    mode: Annotated[str, one_of_the_ends("downlink.mode")] = Field(
        "lossy", description="lossy: the most of what a device lacks, the rest later; exact: all of it"
    )
    select: Annotated[float, Field(ge=0, le=0.5)] = Field(
        0.0, description="fraction of the parameters of a usual step; 0: of P parameters the root of P"
    )
    share: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.3,
        description="of the squared distance to the model that a step takes away at most on average, beyond "
        "downlink.select; less where few devices are at work",
    )
    balance: Annotated[float, Field(ge=0, le=1)] = Field(0.5, description="as compression.balance")
    indices: Annotated[str, one_of(INDEX_CODINGS)] = "grid"
    values: Annotated[str, one_of(VALUE_CODINGS)] = Field("scale", validate_default=True)


class InjectionSettings(Section):
    """Samples that devices share with each other, where their owners agree (client.share)."""

    alpha: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="part of the devices that share, a step"
    )
    beta: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="part of their batch that they share")


def _is_one(select: object) -> bool:
    """Whether it asks for all of a gradient, as a file, the environment or --set may write that."""
    try:
        return float(str(select)) == 1
    except ValueError:
        return False
