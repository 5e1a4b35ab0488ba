"""[client] and [client_config]: one device, and the configuration of devices' own apps."""

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from edgeflock.shared.settings.settings import Section, check_64_bits, split_list


class ClientSettings(Section):
    """One device."""

    server: str = Field(
        "http://127.0.0.1:8470",
        description="URL of the server; of several gateways or standby servers: all of them, separated "
        "by commas",
    )
    token: str = Field("", description="token of a viewer or an admin, for status, top, plot and rollback")
    identity: str = Field(
        "",
        description="file of the identity that `edgeflock client join` writes; empty: one file for all "
        "of this "
        "user",
    )
    insecure: bool = Field(False, description="allow plain HTTP to other machines")
    name: str = Field(
        "", description="the device's name; empty: as it joined, else the host's name and a short machine id"
    )
    data: str = "digits:"
    backend: Literal["auto", "onnx", "torch"] = Field(
        "auto", description="auto: torch if it is installed and may build the model, else onnx"
    )
    flower_app: str = Field("", description="folder of a Flower app, whose ClientApp trains on its own data")
    node_config: str = Field(
        "", description="node config of that app, as for flower-supernode, e.g. partition-id=0 lr=0.1"
    )
    model: str = Field("", description="the module to train with torch, if the server may not choose it")
    directory: str = Field(
        "", description="folder of the first model and the quarantine; empty: the user's cache"
    )
    keep_model: str = Field(
        "",
        description="file for the run's best model, for other programs of this machine: .onnx, or "
        ".safetensors for torch; empty: none",
    )
    keep_model_seconds: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(
        3600.0, description="seconds between two looks for a better one"
    )
    on_model: str = Field("", description="command to run with each new one, whose path is the last argument")
    graph_digest: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = Field(
        "",
        description="digest of the only graph to train with onnx (edgeflock export --digest); empty: the "
        "server's "
        "graph",
    )
    accelerator: Annotated[str, Field(pattern=r"^((cuda|xpu)(:\d+)?|mps)?$")] = Field(
        "", description="device that torch trains on: cuda, cuda:1, mps, xpu; empty: the processor"
    )
    threads: Annotated[int, Field(ge=1)] = 1
    shards: list[str] = Field(
        [], description="instead of data, in runs of tasks: name=data of each shard that the device holds"
    )
    batch_min: Annotated[int, Field(ge=1)] = Field(
        8, description="for a stream: the smallest batch, in samples"
    )
    batch_max: Annotated[int, Field(ge=1)] = Field(
        1024, description="for a stream: the largest batch, in samples"
    )
    buffer: str = Field(
        "",
        description="for a stream: a file that buffers all samples; empty: memory, for those of the last "
        "second",
    )
    buffer_bytes: Annotated[int, Field(ge=1 << 16)] = Field(
        1 << 28, description="for a stream: size limit of the buffer; the oldest samples are dropped"
    )
    range: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="for a stream: samples with larger values are quarantined; 0: a hundred times the usual "
        "values",
    )
    scale: bool = Field(
        False,
        description="for a stream: scale each input to its distance from its median, in units of its "
        "usual spread",
    )
    quarantine: str = Field(
        "", description="for a stream: a file for quarantined samples; empty: in client.directory"
    )
    share: bool = Field(
        False, description="let samples of this device go to other devices, through the server"
    )
    health: bool = Field(
        True, description="report load, memory, temperature, battery and power supply to operators"
    )
    low_priority: bool = Field(
        True,
        description="train at the lowest priority, once the device has joined: other programs run first",
    )
    cpu: str = Field("", description="the largest share of one core to use, e.g. 25%; empty: no limit")
    bandwidth: str = Field(
        "", description="the most to send and receive together, e.g. 50kB/s; empty: no limit"
    )
    pause_on: list[str] = Field(
        [],
        description="when to pause, besides hot:80 and undervoltage (NAME:off turns these off): "
        "battery[:PERCENT], metered, owner, hours:22:00-06:00, file:PATH",
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0

    _from_one_line = field_validator("shards", "pause_on", mode="before")(split_list)


def _check_value(value: object) -> object:
    """Return `value` if a ConfigRecord can hold it. Raises ValueError."""
    entries = value if isinstance(value, list) else [value]
    kinds = {type(check_64_bits(entry)) for entry in entries}
    if len(kinds) > 1 or not kinds <= {bool, int, float, str} or not _is_finite(value):
        raise ValueError("must be a finite number, a text, true or false, or a list of one kind of these")
    return value


def _is_finite(value: object) -> bool:
    numbers = value if isinstance(value, list) else [value]
    return all(math.isfinite(number) for number in numbers if isinstance(number, float))


class ClientConfigSettings(Section):
    """Configuration that devices' own apps receive with every model: any keys."""

    model_config = ConfigDict(extra="allow", frozen=True)

    __pydantic_extra__: dict[str, Annotated[object, AfterValidator(_check_value)]]
