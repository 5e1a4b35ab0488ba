"""[compression], [downlink] and [injection]: uploads, downloads, and samples that devices share."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgeflock.shared.codecs.sparse import CODINGS as INDEX_CODINGS
from edgeflock.shared.codecs.values import CODINGS as VALUE_CODINGS
from edgeflock.shared.settings.choices import one_of, one_of_tables
from edgeflock.shared.settings.settings import Section


class CompressionSettings(Section):
    """What devices send."""

    select: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0,
        description="fraction of the gradient to send; 0: the root of P of P parameters, up to 16 times "
        "as many "
        "from a device that sends rarely or has large batches",
    )
    balance: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="tensors of n entries share the selection as n^balance"
    )
    feedback: Annotated[float, Field(ge=0, le=1)] = Field(
        0.6,
        description="part of the entries not sent that is left after 1,000 versions; it is added to the next "
        "gradients",
    )
    threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="send all of a gradient if the selection loses more of |g|^2; 0: never"
    )
    selection: Literal["largest", "significance"] = Field(
        "largest",
        description="largest: the largest entries; significance: those that would change their parameter "
        "by more "
        "than a part of it",
    )
    significance: Annotated[float, Field(ge=0, le=1000)] = Field(
        0.01, description="that part: |learning rate * gradient / parameter|"
    )
    significance_decay: bool = Field(
        False, description="divide that part by the root of the device's number of updates, as ASP does"
    )
    indices: Annotated[str, one_of(INDEX_CODINGS)] = Field(
        "grid", description="grid: coded with the signs; golomb if values is not scale"
    )
    values: Annotated[str, one_of(VALUE_CODINGS)] = Field(
        "scale", description='scale: without signs, for indices = "grid"', validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, settings: object) -> object:
        """Complete a coding with one that fits it; a whole gradient needs more than the signs."""
        if not isinstance(settings, dict) or {"indices", "values"} <= settings.keys():
            return settings
        if "values" in settings:
            return settings if settings["values"] == "scale" else {**settings, "indices": "golomb"}
        dense = _is_one(settings.get("select")) or settings.get("selection") == "significance"
        if settings.get("indices", "golomb" if dense else "grid") != "grid":
            return {"indices": "golomb", **settings, "values": "codebook4"}
        return settings


class DownlinkSettings(Section):
    """What the server sends to devices."""

    mode: Annotated[str, one_of_tables("downlink.mode")] = Field(
        "lossy",
        description="lossy: the largest part of what a device lacks, the rest later; exact: all of it",
    )
    select: Annotated[float, Field(ge=0, le=0.5)] = Field(
        0.0,
        description="fraction of the parameters that a usual step changes; 0: the root of P of P parameters",
    )
    share: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.3,
        description="the most of the squared distance to the model that a step removes on average, beyond "
        "downlink.select; less where few devices train",
    )
    balance: Annotated[float, Field(ge=0, le=1)] = Field(0.5, description="as compression.balance")
    indices: Annotated[str, one_of(INDEX_CODINGS)] = "grid"
    values: Annotated[str, one_of(VALUE_CODINGS)] = Field("scale", validate_default=True)


class InjectionSettings(Section):
    """Samples that devices share with each other, where their owners agree (client.share)."""

    alpha: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="part of the devices that share samples, at each step"
    )
    beta: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="part of its batch that a device shares"
    )


def _is_one(select: object) -> bool:
    """Whether it selects all of a gradient, as a number or as text."""
    try:
        return float(str(select)) == 1
    except ValueError:
        return False
