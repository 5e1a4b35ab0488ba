"""The settings of a run: every key is declared here with its default. settings.py reads them."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from edgeflock.shared.codecs.sparse import CODINGS as INDEX_CODINGS
from edgeflock.shared.codecs.values import CODINGS as VALUE_CODINGS
from edgeflock.shared.model.calls import Call
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.settings.choices import Tables, call_of, one_of, one_of_the_ends
from edgeflock.shared.settings.optimizer import OptimizerSettings
from edgeflock.shared.settings.settings import Section, parse_as

LEAST_RATE, LARGEST_RATE = 1e-12, 1e6
"""Learning rates beyond these change nothing in float32, or make the model infinite within a few updates."""


ELASTIC = "elastic"
"""The way to coordinate, and the rule of its updates."""


ARRAYS = "arrays:"
"""What a model begins with that is named by a file of its initial arrays."""


def _going_together(values: str, info: ValidationInfo, section: str) -> str:
    """`values`, if they may go with the section's indices: signs travel once, with these or with those."""
    indices = info.data.get("indices")
    if indices is None or (indices == "grid") == (values == "scale"):
        return values
    raise ValueError(
        f'indices = "grid" and values = "scale" go together only, not {indices!r} and {values!r}; '
        f'set both {section}.indices = "grid" and {section}.values = "scale", or neither'
    )


def _told(value: object) -> object:
    """`value`, if a ConfigRecord can hold it."""
    kinds = {type(entry) for entry in (value if isinstance(value, list) else [value])}
    if len(kinds) > 1 or not kinds <= {bool, int, float, str} or not _is_finite(value):
        raise ValueError("must be a finite number, a text, true or false, or a list of one kind of these")
    return value


def _is_finite(value: object) -> bool:
    numbers = value if isinstance(value, list) else [value]
    return all(math.isfinite(number) for number in numbers if isinstance(number, float))


def _is_of_arrays(model: object) -> bool:
    return isinstance(model, dict) and str(model.get("module")).startswith(ARRAYS)


def _is_one(select: object) -> bool:
    """Whether it asks for all of a gradient, as a file, the environment or --set may write that."""
    try:
        return float(str(select)) == 1
    except ValueError:
        return False


def _json(text: str, example: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"must be JSON, e.g. {example}") from error


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
    local_optimizer: Literal["sgd", "adam"] = Field("sgd", description="of a device's own steps")
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

    @field_validator("trackers", "origins", mode="before")
    @classmethod
    def _from_one_line(cls, names: object) -> object:
        """The environment and --set have them behind each other, with commas."""
        if not isinstance(names, str):
            return names
        return [name.strip() for name in names.split(",") if name.strip()]

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
    def _is_for_shards(cls, ray: str, info: ValidationInfo) -> str:
        if ray and not info.data.get("shards"):
            raise ValueError("it is where shards are, and there are none; set scale.shards, or leave it out")
        if ray not in ("", "auto") and not re.fullmatch(r"[^\s:/]+:[0-9]{1,5}", ray):
            raise ValueError("must be HOST:PORT of a cluster that this machine is in, auto, or empty")
        return ray


class ModelSettings(Section):
    """What is trained."""

    module: str = Field(
        "edgeflock.client.zoo:DigitsCNN",
        description="package.module:Name, or Name(argument=value, ...); arrays:FILE, of .npz or "
        ".safetensors, for devices' own apps",
    )
    arguments: dict[str, Any] = Field({}, description="of module, by name: plain values")
    evaluate: str = Field(
        "", description="of arrays: package.module:function of a dict of them to loss or (loss, accuracy)"
    )
    weights: str = Field("", description="safetensors file that a run begins with; empty: as the module does")
    loss: Annotated[str, call_of(LOSSES, "model.loss")] = Field(
        "cross_entropy",
        description="cross_entropy, bce, mse, huber, l1, with arguments as (label_smoothing=0.1); or "
        "package.module:name of (outputs, batch) -> scalar",
    )
    metrics: list[str] = Field(
        [],
        description="of the whole held-out data: accuracy, topk(k=5), f1, auroc, mae, r2, perplexity (extra "
        "metrics); or package.module:name of (outputs, targets) -> number",
    )
    data: str = Field("digits:", description="held-out data for evaluation; empty: none")
    input: Annotated[list[Annotated[int, Field(ge=1, le=1 << 24)]], Field(max_length=8)] = Field(
        [], description="shape of one sample, e.g. [1, 28, 28]; empty: that of data, or not known"
    )
    pull: Annotated[str, one_of(VALUE_CODINGS, lambda coding: coding.of_models)] = Field(
        "f32", description="coding of whole models, if downlink.mode is exact; lossy: as few bytes as will do"
    )

    @property
    def arrays(self) -> str:
        """The file of initial arrays that the model is, if it is one."""
        return self.module.removeprefix(ARRAYS) if self.module.startswith(ARRAYS) else ""

    @field_validator("metrics", mode="before")
    @classmethod
    def _metrics_from_one_line(cls, metrics: object) -> object:
        """The environment and --set have them behind each other, with commas, or as JSON."""
        if not isinstance(metrics, str):
            return metrics
        if metrics.lstrip().startswith("["):
            return _json(metrics, '["f1", "topk(k=3)"]')
        return [text.strip() for text in re.split(r",(?![^(]*\))", metrics) if text.strip()]

    @field_validator("arguments", mode="before")
    @classmethod
    def _from_json(cls, arguments: object) -> object:
        """The environment and --set have them as JSON."""
        return _json(arguments or "{}", '{"width": 64}') if isinstance(arguments, str) else arguments

    @model_validator(mode="after")
    def _is_one_call(self) -> Self:
        """From now on the module's name has its arguments with it."""
        if self.arguments:
            call = Call.of(self.module, "model.module")
            both = Call(call.name, {**call.arguments, **self.arguments})
            Call.of(str(both), "model.arguments")
            object.__setattr__(self, "module", str(both))
            object.__setattr__(self, "arguments", {})
        return self

    @field_validator("input", mode="before")
    @classmethod
    def _from_one_line(cls, sizes: object) -> object:
        """The environment and --set have them behind each other, with commas."""
        if not isinstance(sizes, str):
            return sizes
        named = [size.strip() for size in sizes.strip("[ ]").split(",") if size.strip()]
        if not all(size.isascii() and size.isdecimal() for size in named):
            raise ValueError("must be the sizes of one sample, e.g. 16 or 1,28,28")
        return [int(size) for size in named]


class CoordinationSettings(Section):
    """How updates count."""

    rule: Annotated[str, one_of_the_ends("coordination.rule")] = "adacomp"
    learning_rate: Annotated[float, Field(ge=LEAST_RATE, le=LARGEST_RATE, allow_inf_nan=False)] = 0.05
    window: Annotated[int, Field(ge=2, le=65536)] = Field(256, description="versions")
    mode: Annotated[str, one_of_the_ends("coordination.mode")] = Field(
        "async",
        description="rounds: the updates of all devices apply together, by samples; elastic: devices keep "
        "parameters of their own, of which the model is the centre; buffer: several updates make a step",
    )
    buffer: Annotated[int, Field(ge=1, le=65536)] = Field(
        10, description="of buffer: how many updates make a step; nobody waits for it"
    )
    alpha: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="of elastic: part of its distance to the centre that a device gives and takes"
    )
    chunk: Annotated[int, Field(ge=0)] = Field(
        100_000, description="of elastic: parameters exchanged together while the rest trains; 0: all at once"
    )
    quorum: Annotated[int, Field(ge=0)] = Field(
        0, description="of rounds: how many updates end one; 0: one of each connected device"
    )
    deadline: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        30.0, description="of rounds: seconds after its first update when one ends in any case"
    )
    aggregate: Annotated[str, one_of_the_ends("coordination.aggregate")] = Field(
        "mean",
        description="of rounds: mean; or median, trimmed, krum, which some bad updates may be in",
    )
    gate: Annotated[str, one_of_the_ends("coordination.gate")] = Field(
        "", description="ssp: no device more than bound updates ahead; asp: no copy more behind; empty: none"
    )
    bound: Annotated[int, Field(ge=0, le=65536)] = Field(4, description="of a gate, in updates of one device")
    tasks: Annotated[int, Field(ge=0)] = Field(
        0,
        description="of rounds: shards of its data that a device computes at most in one; 0: none are named",
    )
    order: Annotated[str, one_of_the_ends("coordination.order")] = Field(
        "adaptive", description="in which devices compute their shards: cyclic, staircase, random, adaptive"
    )
    distinct: Annotated[int, Field(ge=0)] = Field(
        0, description="of rounds of tasks: how many shards end one; 0: all that any connected device holds"
    )
    average: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        8.0, description="eta of the averaged model that is evaluated and served; 0: none"
    )
    base_batch: Annotated[int, Field(ge=0)] = Field(
        0, description="B: an update of b samples counts b / B times; 0: all alike"
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: object) -> object:
        """A difference to the centre counts by alpha alone, whoever came before; buffers are FedBuff's."""
        usual = {ELASTIC: ELASTIC, "buffer": "sqrt"}
        rule = usual.get(str(given.get("mode"))) if isinstance(given, dict) else None
        return {"rule": rule, **given} if isinstance(given, dict) and rule is not None else given

    @field_validator("mode")
    @classmethod
    def _goes_with_the_rule(cls, mode: str, info: ValidationInfo) -> str:
        rule = info.data.get("rule")
        if rule is not None and (mode == ELASTIC) != (rule == ELASTIC):
            raise ValueError(
                f'coordination.rule = {rule!r} does not go with it; leave the rule out, which is "elastic" '
                "in elastic averaging and nowhere else"
            )
        return mode

    @field_validator("base_batch")
    @classmethod
    def _is_not_for_elastic(cls, batch: int, info: ValidationInfo) -> int:
        if batch and info.data.get("mode") == ELASTIC:
            raise ValueError("in elastic averaging every update counts by coordination.alpha; set it to 0")
        return batch

    @field_validator("gate")
    @classmethod
    def _is_not_for_rounds(cls, gate: str, info: ValidationInfo) -> str:
        if gate and info.data.get("mode") == "rounds":
            raise ValueError(
                'in rounds nobody is ahead of anybody; set coordination.gate = "", or '
                'coordination.mode = "async"'
            )
        return gate

    @field_validator("aggregate")
    @classmethod
    def _is_for_rounds(cls, aggregate: str, info: ValidationInfo) -> str:
        if aggregate != "mean" and info.data.get("mode") not in ("rounds", None):
            raise ValueError(
                'only rounds have several updates to compare; set coordination.mode = "rounds", or '
                'coordination.aggregate = "mean"'
            )
        return aggregate

    @model_validator(mode="after")
    def _has_what_tasks_need(self) -> Self:
        if self.tasks and self.mode != "rounds":
            raise ValueError(f'tasks = {self.tasks} are of rounds: set mode = "rounds", not {self.mode!r}')
        if self.tasks and self.quorum:
            raise ValueError(
                f"quorum = {self.quorum} counts devices, and rounds of tasks end by shards: set distinct"
            )
        if self.distinct and not self.tasks:
            raise ValueError(f"distinct = {self.distinct} counts tasks: set tasks, or leave it out")
        return self


class DefenceSettings(Section):
    """Against updates of broken or hostile devices."""

    mode: Annotated[str, one_of_the_ends("defence.mode")] = Field(
        "none",
        description="clip: none is much larger than what is usual, by how much honest ones differ; score: "
        "none of devices that disagree with the server's own gradient either, for which a part of model.data "
        "is set apart",
    )
    refresh: Annotated[int, Field(ge=1)] = Field(
        20, description="of score: updates from one gradient of the server's own to the next"
    )


class CompressionSettings(Section):
    """What devices send."""

    select: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="fraction of the gradient; 0: of P parameters the root of P"
    )
    balance: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5, description="tensors of n entries share the selection as n^balance"
    )
    feedback: Annotated[float, Field(ge=0, le=1)] = Field(
        0.9, description="part of what was not sent that is added to the next gradient"
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

    @field_validator("selection")
    @classmethod
    def _is_one_of_two(cls, selection: str, info: ValidationInfo) -> str:
        for key in ("select", "threshold"):
            if selection == "significance" and info.data.get(key):
                raise ValueError(
                    f"compression.{key} = {info.data[key]:g} is for a selection of the largest entries; "
                    f'leave it at 0, or set compression.selection = "largest"'
                )
        return selection

    @field_validator("values")
    @classmethod
    def _go_with_the_indices(cls, values: str, info: ValidationInfo) -> str:
        return _going_together(values, info, "compression")


class DownlinkSettings(Section):
    """What devices are sent."""

    mode: Annotated[str, one_of_the_ends("downlink.mode")] = Field(
        "lossy", description="lossy: the most of what a device lacks, the rest later; exact: all of it"
    )
    select: Annotated[float, Field(ge=0, le=0.5)] = Field(
        0.0, description="fraction of the parameters of a usual step; 0: of P parameters the root of P"
    )
    share: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.02, description="of the squared distance to the model that a step takes away at least, on average"
    )
    balance: Annotated[float, Field(ge=0, le=1)] = Field(0.5, description="as compression.balance")
    indices: Annotated[str, one_of(INDEX_CODINGS)] = "grid"
    values: Annotated[str, one_of(VALUE_CODINGS)] = Field("scale", validate_default=True)

    @field_validator("values")
    @classmethod
    def _go_with_the_indices(cls, values: str, info: ValidationInfo) -> str:
        return _going_together(values, info, "downlink")


class InjectionSettings(Section):
    """Samples that devices share with each other, where their owners agree (client.share)."""

    alpha: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="part of the devices that share, a step"
    )
    beta: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="part of their batch that they share")


class LimitSettings(Section):
    """What the server takes, from one device and in all."""

    frame_bytes: Annotated[int, Field(ge=0)] = Field(
        0, description="of a message; 0: as many as an update of the model, or shared samples, may take"
    )
    inflight_bytes: Annotated[int, Field(ge=1024)] = Field(
        1 << 28, description="of the unfinished messages of all devices together"
    )
    refusals: Annotated[int, Field(ge=0)] = Field(
        20, description="of one device in a minute; one more, and it stays out for a time; 0: any number"
    )
    device_rate: Annotated[float, Field(ge=1024)] = Field(
        float(1 << 28), description="bytes a second to and from a device, a record 8 KiB more; then it waits"
    )
    rate: Annotated[float, Field(ge=1024)] = Field(float(1 << 30), description="the same of all together")
    expansion_bytes: Annotated[int, Field(ge=1024)] = 1 << 28
    samples: Annotated[int, Field(ge=1)] = Field(1 << 16, description="of an update")
    parameter: Annotated[float, Field(gt=0, le=1e30)] = Field(
        60_000.0,
        description="that a step may take one to, in magnitude; no less than twice the first model's",
    )
    devices: Annotated[int, Field(ge=1)] = 10_000
    downlink_bytes: Annotated[int, Field(ge=1 << 20)] = Field(
        1 << 30, description="of memory, for what devices hold (downlink.mode = lossy)"
    )
    downlink_disk_bytes: Annotated[int, Field(ge=0)] = Field(
        1 << 34, description="of a file beside the journal, for what that has no room for"
    )
    watchers: Annotated[int, Field(ge=0)] = Field(16, description="monitors that follow the run at a time")
    device_series: Annotated[int, Field(ge=0)] = Field(
        1000, description="devices that have metrics of their own"
    )
    hello_seconds: Annotated[float, Field(gt=0)] = 10.0
    request_seconds: Annotated[float, Field(gt=0)] = Field(10.0, description="for the head of a request")
    message_seconds: Annotated[float, Field(gt=0)] = Field(
        300.0, description="from the first byte of a message to its last"
    )
    strangers: Annotated[int, Field(ge=1)] = Field(
        1024, description="connections that have shown no token yet"
    )
    address_connections: Annotated[int, Field(ge=1)] = Field(
        4096, description="from one address, or from one proxy"
    )


class ClientConfigSettings(Section):
    """What devices' own apps are told with every model: any keys."""

    model_config = ConfigDict(extra="allow", frozen=True)

    __pydantic_extra__: dict[str, Annotated[object, AfterValidator(_told)]]


class ClientSettings(Section):
    """One device."""

    server: str = Field(
        "http://127.0.0.1:8470",
        description="its URL; of servers that stand by for each other all, with commas",
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
    graph_digest: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = Field(
        "", description="of the one graph to train with onnx (edgeflock export --digest); empty: the server's"
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
    gentle: bool = Field(True, description="run at the lowest priority: whatever else runs here goes first")
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

    @field_validator("shards", "pause_on", mode="before")
    @classmethod
    def _from_one_line(cls, entries: object) -> object:
        """The environment and --set have them behind each other, with commas."""
        if not isinstance(entries, str):
            return entries
        return [entry.strip() for entry in entries.split(",") if entry.strip()]


class Config(Section):
    """Everything that can be set."""

    run: RunSettings = RunSettings()
    journal: JournalSettings = JournalSettings()
    scale: ScaleSettings = ScaleSettings()
    model: ModelSettings = ModelSettings()
    coordination: CoordinationSettings = CoordinationSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    compression: CompressionSettings = CompressionSettings()
    defence: DefenceSettings = DefenceSettings()
    downlink: DownlinkSettings = DownlinkSettings()
    injection: InjectionSettings = InjectionSettings()
    limits: LimitSettings = LimitSettings()
    client: ClientSettings = ClientSettings()
    client_config: ClientConfigSettings = ClientConfigSettings()

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: object) -> object:
        """What goes with a model of arrays, whose updates are what training changed, not gradients; and
        elastic averaging asks for parts of the model, which only the exact downlink knows, as shards do not
        know what each device holds.
        """
        if not isinstance(given, dict):
            return given
        if _is_of_arrays(given.get("model")):
            given = {**given, "model": {"data": "", **given["model"]}}
            how = given.get("coordination", {})
            given["coordination"] = {"learning_rate": 1.0, **how} if isinstance(how, dict) else how
        if not isinstance(given.get("downlink", {}), dict):
            return given
        how, scale = given.get("coordination"), given.get("scale")
        elastic = isinstance(how, dict) and how.get("mode") == ELASTIC
        sharded = isinstance(scale, dict) and scale.get("shards", 0) not in (0, "0")
        if not elastic and not sharded:
            return given
        return {**given, "downlink": {"mode": "exact", **given.get("downlink", {})}}

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        elastic = self.coordination.mode == ELASTIC
        if elastic and self.downlink.mode != "exact":
            raise ValueError(
                f"downlink.mode = {self.downlink.mode!r}: elastic averaging asks for parts of the model; "
                'set it to "exact", or leave it out'
            )
        if self.scale.shards and self.downlink.mode != "exact":
            raise ValueError(
                f"downlink.mode = {self.downlink.mode!r} compares all of the model with what each device "
                f'holds, and scale.shards = {self.scale.shards} spreads it; set "exact", or leave it out'
            )
        if elastic and self.optimizer != OptimizerSettings():
            raise ValueError(
                f"optimizer.kind = {self.optimizer.kind!r}: in elastic averaging devices step, and the "
                "server goes towards them; leave [optimizer] out"
            )
        if elastic and self.compression.threshold:
            raise ValueError(
                f"compression.threshold = {self.compression.threshold:g} is of gradients; leave it at 0 in "
                "elastic averaging"
            )
        run = self.run
        own = {
            "run.local_momentum": 0.0 if elastic else run.local_momentum,
            "run.proximal": run.proximal,
            "run.local_optimizer": "" if run.local_optimizer == "sgd" else run.local_optimizer,
        }
        for key, value in own.items():
            if value and elastic:
                raise ValueError(f"{key} = {value!r} is not for elastic averaging; leave it out")
            if value and run.local_steps == 1:
                raise ValueError(
                    f"{key} = {value!r} is for a device's own steps, and it takes none with run.local_steps "
                    "= 1; raise that"
                )
        if run.local_optimizer == "adam" and run.local_momentum:
            raise ValueError(
                f'run.local_momentum = {run.local_momentum:g} does not go with run.local_optimizer = "adam"; '
                "leave it at 0"
            )
        return self


def parse(
    toml: str = "",
    source: str = "edgeflock.toml",
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    tables: Tables | None = None,
) -> Config:
    """The configuration: `toml` (the text of `source`), then `environ`, then `overrides` (key=value).

    The environment's EDGEFLOCK_TOKEN is another word for its EDGEFLOCK_CLIENT__TOKEN.
    `tables` are those of the end that reads it; what they would say of a setting is not looked at without.
    Raises ConfigError.
    """
    if environ is not None and (token := environ.get("EDGEFLOCK_TOKEN")):
        environ = {"EDGEFLOCK_CLIENT__TOKEN": token, **environ}
    return parse_as(Config, toml, source, environ, overrides, tables)


def taken(given: Mapping[str, object], source: str, tables: Tables | None = None) -> Config:
    """The configuration of sections as TOML would have them, which were given to `source`. Raises
    ConfigError.
    """
    return parse_as(Config, "", source, tables=tables, given=given)


def describe() -> str:
    """Every key with its default as a TOML file."""
    defaults = Config()
    lines = []
    for name, section in defaults:
        lines += [f"[{name}]  # {type(section).__doc__}"]
        for key, info in type(section).model_fields.items():
            value = getattr(section, key)
            text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
            lines.append(f"{key} = {text}" + (f"  # {info.description}" if info.description else ""))
        lines.append("")
    return "\n".join(lines)
