"""[client] and [client_config]: one device, and what devices' own apps are told."""

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from edgeflock.shared.settings.settings import Section, in_one_line, within_64_bits


class ClientSettings(Section):
    """One device."""

    server: str = Field(
        "http://127.0.0.1:8470",
        description="its URL; of gateways, or servers that stand by for each other, all, with commas",
    )
    token: str = Field("", description="of a viewer or an admin, for status, top, plot and rollback")
    identity: str = Field(
        "", description="file that `edgeflock client join` keeps; empty: one for all of this user"
    )
    insecure: bool = Field(False, description="speak plain HTTP also beyond this machine")
    name: str = Field("", description="empty: as it joined; else the host's name and a short machine id")
    data: str = "digits:"
    backend: Literal["auto", "onnx", "torch"] = Field(
        "auto", description="auto: torch if it is installed and may build the model, else onnx"
    )
    flower_app: str = Field("", description="folder of a Flower app, whose ClientApp trains on its own data")
    node_config: str = Field("", description="of it, as flower-supernode's, e.g. partition-id=0 lr=0.1")
    model: str = Field("", description="the module to train with torch, if the server may not choose it")
    directory: str = Field(
        "", description="where the first model and the quarantine are kept; empty: the user's cache"
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
        "", description="of the one graph to train with onnx (edgeflock export --digest); empty: the server's"
    )
    accelerator: Annotated[str, Field(pattern=r"^((cuda|xpu)(:\d+)?|mps)?$")] = Field(
        "", description="where torch trains: cuda, cuda:1, mps, xpu; empty: the processor"
    )
    threads: Annotated[int, Field(ge=1)] = 1
    shards: list[str] = Field(
        [], description="in place of data: name=data of each shard that it holds, for runs of tasks"
    )
    batch_min: Annotated[int, Field(ge=1)] = Field(8, description="of a stream: fewest samples of a batch")
    batch_max: Annotated[int, Field(ge=1)] = Field(1024, description="of a stream: most samples of a batch")
    buffer: str = Field(
        "", description="of a stream: a file for all that arrived; empty: memory, for the last second"
    )
    buffer_bytes: Annotated[int, Field(ge=1 << 16)] = Field(
        1 << 28, description="of a stream: the most that is buffered; the oldest is dropped"
    )
    range: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="of a stream: what goes beyond it is set aside; 0: a hundred times what is usual",
    )
    scale: bool = Field(
        False, description="of a stream: inputs as distances from each one's median, in its usual spread"
    )
    quarantine: str = Field(
        "", description="of a stream: a file for samples that were set aside; empty: in client.directory"
    )
    share: bool = Field(False, description="let samples of this device go to others, through the server")
    health: bool = Field(True, description="tell operators of load, memory, temperature, battery and supply")
    gentle: bool = Field(
        True,
        description="train at the lowest priority, once it has joined: whatever else runs here goes first",
    )
    cpu: str = Field("", description="the most of a core that it takes, e.g. 25%; empty: what it gets")
    bandwidth: str = Field(
        "", description="the most that it sends and receives together, e.g. 50kB/s; empty: what it gets"
    )
    pause_on: list[str] = Field(
        [],
        description="beside hot:80 and undervoltage (NAME:off turns them off): battery[:PERCENT], metered, "
        "owner, file:PATH",
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0

    _from_one_line = field_validator("shards", "pause_on", mode="before")(in_one_line)


def _told(value: object) -> object:
    """`value`, if a ConfigRecord can hold it."""
    entries = value if isinstance(value, list) else [value]
    kinds = {type(within_64_bits(entry)) for entry in entries}
    if len(kinds) > 1 or not kinds <= {bool, int, float, str} or not _is_finite(value):
        raise ValueError("must be a finite number, a text, true or false, or a list of one kind of these")
    return value


def _is_finite(value: object) -> bool:
    numbers = value if isinstance(value, list) else [value]
    return all(math.isfinite(number) for number in numbers if isinstance(number, float))


class ClientConfigSettings(Section):
    """What devices' own apps are told with every model: any keys."""

    model_config = ConfigDict(extra="allow", frozen=True)

    __pydantic_extra__: dict[str, Annotated[object, AfterValidator(_told)]]
