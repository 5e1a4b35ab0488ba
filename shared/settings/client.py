"""[client] and [client_config]: one device, and the configuration of devices' own apps."""

import math
import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from edgeflock.shared.settings.settings import Section, check_64_bits, split_list

MAX_LABELS = 8

_LABEL_NAME, _LABEL_VALUE = re.compile(r"[A-Za-z0-9._-]{1,40}"), re.compile(r"[A-Za-z0-9._-]{1,60}")


class ClientSettings(Section):
    """One device."""

    server: str = "http://127.0.0.1:8470"
    """URL of the server; of several gateways or standby servers: all, separated by commas"""
    runs: list[str] = []
    """runs, by name, of a server that hosts several; empty: the one whose server.labels are this device's"""
    token: str = ""
    """token of a viewer or an admin, for status, top, plot and rollback; empty: none"""
    identity: str = ""
    """file of the key and credential that `edgeflock client join` writes; empty: one file for all of this
    user"""
    insecure: bool = False
    """allow plain HTTP to other machines"""
    name: str = ""
    """the device's name; empty: as it joined, else the host's name and a short machine id"""
    labels: list[str] = []
    """what operators can select this device by: NAME=VALUE, e.g. site=north, eight at most; empty: nothing"""
    data: str = "digits:"
    """URI of the data to train on, e.g. csv:/srv/readings.csv?label=state"""
    hold_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """part of stored data not to train on, but to evaluate the model on, if evaluation.on_devices is set"""
    backend: Literal["auto", "onnx", "torch"] = "auto"
    """what computes gradients; auto: torch if it is installed and may build the model, else onnx"""
    flower_app: str = ""
    """folder of a Flower app whose ClientApp trains on its own data; empty: none"""
    node_config: str = ""
    """node config of client.flower_app, as for flower-supernode, e.g. partition-id=0 lr=0.1"""
    model: str = ""
    """model to build with torch, as model.module, if the server may not choose it; empty: the server's"""
    directory: str = ""
    """folder of the first model, the pending update and the quarantine; empty: the user's cache"""
    keep_model: str = ""
    """file for the run's best model, for other programs of this machine: .onnx, or .safetensors for torch;
    empty: none"""
    keep_model_seconds: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 3600.0
    """for client.keep_model: seconds from one look for a better model to the next"""
    graph_digest: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""
    """SHA-256 of the only graph to train with onnx (edgeflock export --digest); empty: any graph of the
    server"""
    accelerator: Annotated[str, Field(pattern=r"^((cuda|xpu)(:\d+)?|mps)?$")] = ""
    """where torch trains: cuda, cuda:1, mps, xpu; or onnx: cuda; empty: the processor"""
    threads: Annotated[int, Field(ge=1)] = 1
    """processor threads to train with"""
    shards: list[str] = []
    """for runs of tasks: name=URI of each data shard that the device holds, instead of client.data"""
    batch_min: Annotated[int, Field(ge=1)] = 8
    """for a stream: the smallest batch, in samples"""
    batch_max: Annotated[int, Field(ge=1)] = 1024
    """for a stream: the largest batch, in samples"""
    buffer: str = ""
    """for a stream: file that keeps all samples until they are trained on; empty: memory, for those of the
    last second"""
    buffer_bytes: Annotated[int, Field(ge=1 << 16)] = 1 << 28
    """for a stream: bytes of the buffer, at most; beyond, the oldest samples are dropped"""
    range: Annotated[float, Field(ge=0)] = 0.0
    """for a stream: samples with a number beyond this magnitude are set aside; 0: a hundred times the usual
    magnitude"""
    sum_devices: Annotated[int, Field(ge=2)] = 3
    """for private runs: fewest devices, this one included, with which its gradient is summed"""
    sum_threshold: Annotated[float, Field(ge=0.5, lt=1)] = 0.5
    """for private runs: least coordination.threshold with which this device takes part"""
    sum_noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """for private runs: least noise multiplier (privacy.noise) that the server must state; 0: none"""
    vouched: str = ""
    """for private runs: file of the identities, one a line, of the only devices to sum with; empty: all that
    the server names"""
    share: bool = False
    """let samples of this device go to other devices, through the server"""
    health: bool = True
    """report load, memory, temperature, battery and power supply to operators"""
    low_priority: bool = True
    """train at the lowest priority, once the device has joined: other programs run first"""
    cpu: str = ""
    """largest share of one core to use, e.g. 25% or 150%; empty: no limit"""
    bandwidth: str = ""
    """largest rate of sending and receiving together, e.g. 50kB/s; empty: no limit"""
    pause_on: list[str] = []
    """pause while: battery (it has no mains), battery:40 (and less than 40%), metered (the network is), owner
    (a person uses it), hours:22:00-06:00 (outside these hours), file:PATH (it exists); also hot:80 and
    undervoltage, unless NAME:off is listed"""
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    """seed of random numbers, e.g. of the order of samples; devices of other names get others"""

    _from_one_line = field_validator("shards", "pause_on", "labels", "runs", mode="before")(split_list)

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: list[str]) -> list[str]:
        parse_labels(labels)
        return labels


def parse_labels(labels: Iterable[str]) -> dict[str, str]:
    """Return NAME -> VALUE of labels such as site=north. Raises ValueError."""
    found: dict[str, str] = {}
    for label in labels:
        name, equals, value = label.partition("=")
        if not (equals and _LABEL_NAME.fullmatch(name) and _LABEL_VALUE.fullmatch(value)) or name in found:
            raise ValueError(
                f"{label!r} must be NAME=VALUE, e.g. site=north: a name of its own of at most 40 letters, "
                "digits, '.', '_' and '-', and a value of at most 60 of these"
            )
        found[name] = value
    if len(found) > MAX_LABELS:
        raise ValueError(f"a device has at most {MAX_LABELS} labels, and these are {len(found)}")
    return found


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
