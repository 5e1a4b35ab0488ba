"""[compression], [downlink] and [injection]: uploads, downloads, and samples that devices share."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgeflock.shared.codecs.sparse import CODINGS as INDEX_CODINGS
from edgeflock.shared.codecs.values import CODINGS as VALUE_CODINGS
from edgeflock.shared.settings.choices import one_of, one_of_tables
from edgeflock.shared.settings.settings import Section


class CompressionSettings(Section):
    """What devices send."""

    select: Annotated[float, Field(ge=0, le=1)] = 0.0
    """part of a gradient's entries to send; 0: root of P of P entries, up to 16 times as many from a device
    that sends rarely or has large batches"""
    balance: Annotated[float, Field(ge=0, le=1)] = 0.5
    """how tensors share the selection: by n^balance for n entries; 1: by their size, 0: all alike"""
    feedback: Annotated[float, Field(ge=0, le=1)] = 0.6
    """part of an unsent entry that is left after 1,000 versions, to be added to the next gradients; 0: none,
    1: all"""
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.0
    """send all of a gradient if the selection loses more than this part of its squared norm; 0: never"""
    selection: Literal["largest", "significance"] = "largest"
    """what to send; largest: the largest entries; significance: those that would change their parameter by
    more than compression.significance"""
    significance: Annotated[float, Field(ge=0, le=1000)] = 0.01
    """for significance: smallest |learning rate * gradient / parameter| to send; 0: all entries but zeros"""
    significance_decay: bool = False
    """divide compression.significance by the root of the device's number of updates, as ASP does"""
    indices: Annotated[str, one_of(INDEX_CODINGS)] = "grid"
    """coding of the positions of entries: golomb, raw, runs, or grid, which also codes signs; not set: golomb
    if compression.values is not scale"""
    values: Annotated[str, one_of(VALUE_CODINGS)] = Field("scale", validate_default=True)
    """coding of entries: f32, f16, int8, codebook4, sign, or scale, which leaves the signs to the grid"""

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

    mode: Annotated[str, one_of_tables("downlink.mode")] = "lossy"
    """lossy: a device gets the largest changes that it lacks, and the rest later; exact: all of them"""
    select: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """for lossy: part of the parameters that an answer usually changes; 0: root of P of P parameters"""
    share: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """for lossy: send more until an answer removes this part of the squared distance to the model on average,
    or less where few devices train; 0: never more than downlink.select"""
    values: Annotated[str, one_of(VALUE_CODINGS)] = Field("scale", validate_default=True)
    """for lossy: coding of changes, as compression.values"""


class InjectionSettings(Section):
    """Samples that devices share with each other, where their owners agree (client.share)."""

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.0
    """part of the devices that share samples at a step, on average; 0: none"""
    beta: Annotated[float, Field(ge=0, le=1)] = 0.0
    """part of its batch that such a device shares; 0: nothing"""


def _is_one(select: object) -> bool:
    """Whether it selects all of a gradient, as a number or as text."""
    try:
        return float(str(select)) == 1
    except ValueError:
        return False
