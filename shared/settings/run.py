"""[run], [journal] and [scale]: the server, its journal, and the processes of its model."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from edgeflock.shared.settings.choices import one_of_tables
from edgeflock.shared.settings.client import parse_labels
from edgeflock.shared.settings.settings import Section, split_list


class RunSettings(Section):
    """The server and the run it hosts."""

    directory: str = "edgeflock-run"
    """folder of the run: its journal, keys, tokens and devices"""
    host: str = "127.0.0.1"
    """address to listen on; 127.0.0.1: for this machine only, 0.0.0.0: for all"""
    port: Annotated[int, Field(ge=0, le=65535)] = 8470
    """TCP port to listen on; 0: any free one"""
    certificate: str = ""
    """PEM file of the TLS certificate; empty: the server makes its own; without run.key: that of a proxy in
    front of the server"""
    key: str = ""
    """PEM file of the certificate's private key; empty: the server or the proxy has it"""
    client_certificates: Literal["", "devices", "everybody"] = ""
    """who must show, over TLS, the certificate that a device gets when it joins; empty: nobody"""
    insecure: bool = False
    """allow plain HTTP to other machines"""
    open: bool = False
    """let everybody who reaches the server train and watch without a token"""
    browsers: bool = False
    """let browsers take part: serve the training page at /train (edgeflock browsers install)"""
    origins: list[str] = []
    """other web origins whose pages may watch and act, e.g. https://flock.example.org; empty: none"""
    labels: list[str] = []
    """labels NAME=VALUE of devices that this run is for if they name no run, where a server hosts several;
    empty: none"""
    updates: Annotated[int, Field(ge=0)] = 0
    """stop after this number of updates; 0: never"""
    accuracy: Annotated[float, Field(ge=0, le=1)] = 0.0
    """stop once an evaluation has this accuracy, from 0 to 1; 0: never"""
    patience: Annotated[int, Field(ge=0)] = 0
    """stop after this number of evaluations in a row without a new best one; 0: never"""
    recover: bool = True
    """once the loss has risen until all progress is lost, restore an earlier model and halve the learning
    rate"""
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """stop at the first evaluation so many seconds after the first update; 0: never"""
    bytes: Annotated[int, Field(ge=0)] = 0
    """stop at the first evaluation after this many bytes to and from devices; 0: never"""
    batch: Annotated[int, Field(ge=1)] = 10
    """samples of one step of a device; streams choose their own number"""
    local_steps: Annotated[int, Field(ge=1)] = 1
    """steps that a device takes for one update"""
    local_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    """learning rate of a device's own steps; not set: coordination.learning_rate for adafactor, else 0.05"""
    local_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Nesterov momentum of a device's own steps; 0: none"""
    local_optimizer: Literal["sgd", "adam", "adafactor"] = "sgd"
    """optimizer of a device's own steps; adafactor also scales the gradient of a single step; not set:
    adafactor, or sgd if a rate, a momentum, coordination.mode, optimizer.kind or compression.selection is
    set"""
    balance_labels: bool = True
    """for adafactor: devices report the share of each class in their data, and give more weight to classes
    that few devices hold, or only slow ones"""
    proximal: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """mu of FedProx: how strongly a device's own steps are drawn back to the model that they started from; 0:
    not at all"""
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    """seed of the model's initial weights"""
    evaluate_every: Annotated[float, Field(gt=0)] = 2.0
    """seconds from one evaluation on the held-out data to the next"""
    evaluate_on_devices: Annotated[int, Field(ge=0)] = 0
    """each device evaluates the model once in so many of its updates, on data of its own; 0: never"""
    snapshot_every: Annotated[int, Field(ge=1)] = 1000
    """updates from one snapshot of the model in the journal to the next; a restart replays at most so many"""
    keep_updates: bool = True
    """keep update records in the journal that no restart needs, to go back to any version"""
    trackers: list[Annotated[str, one_of_tables("run.trackers")]] = []
    """where to write every evaluation: jsonl, tensorboard, mlflow, wandb; empty: nowhere"""

    on_update: Annotated[str, one_of_tables("run.on_update")] = ""
    """package.module:function to call with each update once it is in the model; empty: none"""
    on_evaluated: Annotated[str, one_of_tables("run.on_evaluated")] = ""
    """package.module:function to call with each evaluation; empty: none"""
    on_finding: Annotated[str, one_of_tables("run.on_finding")] = ""
    """package.module:function to call with each finding (a problem of the run) when it begins; empty: none"""
    stop: Annotated[str, one_of_tables("run.stop")] = ""
    """package.module:function to call with each evaluation; the run stops if it returns true; empty: none"""

    _from_one_line = field_validator("trackers", "origins", "labels", mode="before")(split_list)

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: list[str]) -> list[str]:
        parse_labels(labels)
        return labels

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

    url: str = ""
    """sqlite:PATH or postgresql://HOST/DATABASE; empty: journal.sqlite in run.directory"""
    lease: Annotated[float, Field(ge=1, le=3600)] = 5.0
    """seconds without an answer of PostgreSQL after which another server may take over the run"""

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

    shards: Annotated[int, Field(ge=0, le=1024)] = 0
    """processes that hold a part of the parameters each; 0: the server process holds them all"""
    ray: str = ""
    """for shards: HOST:PORT of a Ray cluster that this machine is in, or auto to find it; empty: start a new
    one"""

    @field_validator("ray")
    @classmethod
    def _check_address(cls, ray: str) -> str:
        if ray not in ("", "auto") and not re.fullmatch(r"[^\s:/]+:[0-9]{1,5}", ray):
            raise ValueError("must be HOST:PORT of a cluster that this machine is in, auto, or empty")
        return ray
