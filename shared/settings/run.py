"""[run], [journal] and [scale]: the server, where what it knows lies, and over what it is spread."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from edgeflock.shared.settings.choices import one_of_the_ends
from edgeflock.shared.settings.settings import Section, in_one_line


class RunSettings(Section):
    """The server and the run it hosts."""

    directory: str = Field("edgeflock-run", description="where the journal and the identities are kept")
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8470
    certificate: str = Field(
        "",
        description="for TLS, in PEM; empty: the server makes one; without a key: that of a proxy",
    )
    key: str = Field("", description="file in PEM with the certificate's private key")
    client_certificates: Literal["", "devices", "everybody"] = Field(
        "", description="who must show, over TLS, the certificate that a device gets when it joins"
    )
    insecure: bool = Field(False, description="speak plain HTTP also beyond this machine")
    open: bool = Field(False, description="let devices and viewers in without a token, on this machine")
    origins: list[str] = Field(
        [], description="of pages that may act and watch, beside the server's own: https://flock.example.org"
    )
    updates: Annotated[int, Field(ge=0)] = Field(0, description="stop after so many; 0: never")
    accuracy: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="stop once an evaluation has it; 0: never"
    )
    patience: Annotated[int, Field(ge=0)] = Field(
        0, description="stop after so many evaluations that are no better than the best; 0: never"
    )
    recover: bool = Field(
        True,
        description="whether the model goes back and the learning rate is halved, once the loss has risen "
        "until all that was learned is lost",
    )
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="stop so long after the first update, at an evaluation; 0: never"
    )
    bytes: Annotated[int, Field(ge=0)] = Field(
        0, description="stop at an evaluation after so many to and from devices; 0: never"
    )
    batch: Annotated[int, Field(ge=1)] = Field(10, description="samples per step")
    local_steps: Annotated[int, Field(ge=1)] = Field(1, description="steps a device takes per update")
    local_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        0.05, description="learning rate of the steps between"
    )
    local_momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="Nesterov's, of a device's own steps"
    )
    local_optimizer: Literal["sgd", "adam", "adafactor"] = Field(
        "sgd",
        description="of a device's own steps; adafactor also where a device takes one step per update, and "
        "unless coordination.learning_rate is given",
    )
    balance_labels: bool = Field(
        True,
        description="of adafactor: devices report the share of each class in their data, and train so that "
        "classes count which few devices hold, or only slow ones",
    )
    proximal: Annotated[float, Field(ge=0, le=1000)] = Field(
        0.0, description="mu of FedProx: how much a device's own steps are drawn to where they set out from"
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    evaluate_every: Annotated[float, Field(gt=0)] = Field(2.0, description="seconds")
    evaluate_on_devices: Annotated[int, Field(ge=0)] = Field(
        0, description="updates of a device from one evaluation by its own app to the next; 0: none"
    )
    snapshot_every: Annotated[int, Field(ge=1)] = Field(1000, description="updates")
    keep_updates: bool = Field(True, description="keep update records that no restart needs")
    trackers: list[Annotated[str, one_of_the_ends("run.trackers")]] = Field(
        [], description="that get every evaluation: jsonl, tensorboard, mlflow, wandb"
    )

    on_update: Annotated[str, one_of_the_ends("run.on_update")] = Field(
        "", description="package.module:function that is told of each update in the model"
    )
    on_evaluated: Annotated[str, one_of_the_ends("run.on_evaluated")] = Field(
        "", description="package.module:function that is told of each evaluation"
    )
    on_finding: Annotated[str, one_of_the_ends("run.on_finding")] = Field(
        "", description="package.module:function that is told of each finding when it begins"
    )
    stop: Annotated[str, one_of_the_ends("run.stop")] = Field(
        "", description="package.module:function of an evaluation to whether it is enough"
    )

    _from_one_line = field_validator("trackers", "origins", mode="before")(in_one_line)

    @field_validator("origins")
    @classmethod
    def _are_origins(cls, origins: list[str]) -> list[str]:
        """As a browser writes them: in lower case, without what follows the host."""
        for origin in origins:
            if not re.fullmatch(r"https?://([^\s/?#@:*\[\]]+|\[[0-9a-fA-F:]+\])(:[0-9]+)?", origin):
                raise ValueError(f"{origin!r} must be a scheme and a host, as https://flock.example.org")
        return [origin.lower() for origin in origins]


class JournalSettings(Section):
    """Where the run is kept, and who may write it."""

    url: str = Field(
        "", description="sqlite:PATH or postgresql://HOST/DATABASE; empty: journal.sqlite in run.directory"
    )
    lease: Annotated[float, Field(ge=1, le=3600)] = Field(
        5.0, description="seconds without an answer of PostgreSQL after which another server may take over"
    )

    @field_validator("url")
    @classmethod
    def _of_a_kind(cls, url: str) -> str:
        kind, _, rest = url.partition(":")
        if url and (kind not in ("sqlite", "postgresql", "postgres") or not rest):
            raise ValueError(
                f"{kind}:... is no place for a journal; use sqlite:PATH or postgresql://HOST/DATABASE"
            )
        return url


class ScaleSettings(Section):
    """A model that one process has no room for (extra ray)."""

    shards: Annotated[int, Field(ge=0, le=1024)] = Field(
        0, description="processes that the parameters are spread over; 0: they are in the server's own"
    )
    ray: str = Field(
        "",
        description="of shards: HOST:PORT of a Ray cluster that this machine is in, or auto; empty: one of "
        "its own",
    )

    @field_validator("ray")
    @classmethod
    def _is_an_address(cls, ray: str) -> str:
        if ray not in ("", "auto") and not re.fullmatch(r"[^\s:/]+:[0-9]{1,5}", ray):
            raise ValueError("must be HOST:PORT of a cluster that this machine is in, auto, or empty")
        return ray
