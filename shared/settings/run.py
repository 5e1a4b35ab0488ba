"""[run], [journal] and [scale]: the server, its journal, and the processes of its model."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from edgeflock.shared.settings.choices import one_of_tables
from edgeflock.shared.settings.settings import Section, split_list


class RunSettings(Section):
    """The server and the run it hosts."""

    directory: str = Field("edgeflock-run", description="folder of the journal and the identities")
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
    insecure: bool = Field(False, description="allow plain HTTP to other machines")
    open: bool = Field(False, description="let devices and viewers on this machine connect without a token")
    origins: list[str] = Field(
        [], description="origins of other web pages that may watch and act, e.g. https://flock.example.org"
    )
    updates: Annotated[int, Field(ge=0)] = Field(0, description="stop after this number of updates; 0: never")
    accuracy: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="stop once an evaluation has this accuracy; 0: never"
    )
    patience: Annotated[int, Field(ge=0)] = Field(
        0, description="stop after this number of evaluations that are no better than the best; 0: never"
    )
    recover: bool = Field(
        True,
        description="restore an earlier model and halve the learning rate, once the loss has risen until all "
        "progress is lost",
    )
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="stop this long after the first update, at an evaluation; 0: never"
    )
    bytes: Annotated[int, Field(ge=0)] = Field(
        0, description="stop at an evaluation after this many bytes to and from devices; 0: never"
    )
    batch: Annotated[int, Field(ge=1)] = Field(10, description="samples per step")
    local_steps: Annotated[int, Field(ge=1)] = Field(1, description="steps that a device takes per update")
    local_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        0.05, description="learning rate of a device's own steps"
    )
    local_momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="Nesterov momentum of a device's own steps"
    )
    local_optimizer: Literal["sgd", "adam", "adafactor"] = Field(
        "sgd",
        description="optimizer of a device's own steps; adafactor also scales gradients of one step, and "
        "is the "
        "default if coordination.learning_rate is not set",
    )
    balance_labels: bool = Field(
        True,
        description="for adafactor: devices report the share of each class in their data, and give more "
        "weight to "
        "classes that few devices hold, or only slow ones",
    )
    proximal: Annotated[float, Field(ge=0, le=1000)] = Field(
        0.0,
        description="mu of FedProx: how strongly a device's own steps are drawn to the model they "
        "started from",
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    evaluate_every: Annotated[float, Field(gt=0)] = Field(2.0, description="seconds between evaluations")
    evaluate_on_devices: Annotated[int, Field(ge=0)] = Field(
        0, description="updates of a device from one evaluation by its own app to the next; 0: never"
    )
    snapshot_every: Annotated[int, Field(ge=1)] = Field(1000, description="updates between snapshots")
    keep_updates: bool = Field(True, description="keep update records that no restart needs")
    trackers: list[Annotated[str, one_of_tables("run.trackers")]] = Field(
        [], description="trackers that get every evaluation: jsonl, tensorboard, mlflow, wandb"
    )

    on_update: Annotated[str, one_of_tables("run.on_update")] = Field(
        "", description="package.module:function that is called with each update in the model"
    )
    on_evaluated: Annotated[str, one_of_tables("run.on_evaluated")] = Field(
        "", description="package.module:function that is called with each evaluation"
    )
    on_finding: Annotated[str, one_of_tables("run.on_finding")] = Field(
        "", description="package.module:function that is called with each finding when it begins"
    )
    stop: Annotated[str, one_of_tables("run.stop")] = Field(
        "", description="package.module:function from an evaluation to whether to stop"
    )

    _from_one_line = field_validator("trackers", "origins", mode="before")(split_list)

    @field_validator("origins")
    @classmethod
    def _check_origins(cls, origins: list[str]) -> list[str]:
        """Return them as a browser writes them: in lower case, without a path. Raises ValueError."""
        for origin in origins:
            if not re.fullmatch(r"https?://([^\s/?#@:*\[\]]+|\[[0-9a-fA-F:]+\])(:[0-9]+)?", origin):
                raise ValueError(f"{origin!r} must be a scheme and a host, e.g. https://flock.example.org")
        return [origin.lower() for origin in origins]


class JournalSettings(Section):
    """The database of the run, and the lease of its writer."""

    url: str = Field(
        "", description="sqlite:PATH or postgresql://HOST/DATABASE; empty: journal.sqlite in run.directory"
    )
    lease: Annotated[float, Field(ge=1, le=3600)] = Field(
        5.0, description="seconds without an answer of PostgreSQL after which another server may take over"
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        kind, _, rest = url.partition(":")
        if url and (kind not in ("sqlite", "postgresql", "postgres") or not rest):
            raise ValueError(
                f"{kind}:... is no URL of a journal; use sqlite:PATH or postgresql://HOST/DATABASE"
            )
        return url


class ScaleSettings(Section):
    """A model that is too large for one process (extra ray)."""

    shards: Annotated[int, Field(ge=0, le=1024)] = Field(
        0,
        description="processes over which the parameters are distributed; 0: they are in the server process",
    )
    ray: str = Field(
        "",
        description="for shards: HOST:PORT of a Ray cluster that this machine is in, or auto; empty: a "
        "new one",
    )

    @field_validator("ray")
    @classmethod
    def _check_address(cls, ray: str) -> str:
        if ray not in ("", "auto") and not re.fullmatch(r"[^\s:/]+:[0-9]{1,5}", ray):
            raise ValueError("must be HOST:PORT of a cluster that this machine is in, auto, or empty")
        return ray
