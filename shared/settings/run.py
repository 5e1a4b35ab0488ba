"""[local], [evaluation], [callbacks] and [end]: how a run trains, is watched, and ends."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from edgeflock.shared.settings.choices import one_of_tables
from edgeflock.shared.settings.settings import Section, split_list


class LocalSettings(Section):
    """What a device computes for an update, with steps of its own."""

    batch: Annotated[int, Field(ge=1)] = 10
    """samples of one step of a device; streams choose their own number"""
    steps: Annotated[int, Field(ge=1)] = 1
    """steps that a device takes for one update"""
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    """learning rate of a device's own steps; not set: coordination.learning_rate for adafactor, else 0.05"""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Nesterov momentum of a device's own steps; 0: none"""
    optimizer: Literal["sgd", "adam", "adafactor"] = "sgd"
    """optimizer of a device's own steps; adafactor also scales the gradient of a single step; not set:
    adafactor, or sgd if a rate, a momentum, coordination.mode, optimizer.kind, compression.selection or
    privacy.mode is set"""
    balance_labels: bool = True
    """for adafactor: devices report the share of each class in their data, and give more weight to classes
    that few devices hold, or only slow ones"""
    proximal: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """mu of FedProx: how strongly a device's own steps are drawn back to the model that they started from; 0:
    not at all"""


class EvaluationSettings(Section):
    """How often the model is evaluated, where evaluations go, and what a lost model leads to."""

    every: Annotated[float, Field(gt=0)] = 2.0
    """seconds from one evaluation on the held-out data to the next"""
    on_devices: Annotated[int, Field(ge=0)] = 0
    """each device evaluates the model once in so many of its updates, on data of its own; 0: never"""
    trackers: list[Annotated[str, one_of_tables("evaluation.trackers")]] = []
    """where to write every evaluation: jsonl, tensorboard, mlflow, wandb; empty: nowhere"""
    recover: bool = True
    """once the loss has risen until all progress is lost, restore an earlier model and halve the learning
    rate"""

    _from_one_line = field_validator("trackers", mode="before")(split_list)


class CallbackSettings(Section):
    """Functions of your own that the server calls with news of the run."""

    on_update: Annotated[str, one_of_tables("callbacks.on_update")] = ""
    """package.module:function to call with each update once it is in the model; empty: none"""
    on_evaluated: Annotated[str, one_of_tables("callbacks.on_evaluated")] = ""
    """package.module:function to call with each evaluation; empty: none"""
    on_finding: Annotated[str, one_of_tables("callbacks.on_finding")] = ""
    """package.module:function to call with each finding (a problem of the run) when it begins; empty: none"""
    stop: Annotated[str, one_of_tables("callbacks.stop")] = ""
    """package.module:function to call with each evaluation; the run stops if it returns true; empty: none"""


class EndSettings(Section):
    """When the run ends: at the first of these."""

    updates: Annotated[int, Field(ge=0)] = 0
    """stop after this number of updates; 0: never"""
    accuracy: Annotated[float, Field(ge=0, le=1)] = 0.0
    """stop once an evaluation has this accuracy, from 0 to 1; 0: never"""
    patience: Annotated[int, Field(ge=0)] = 0
    """stop after this number of evaluations in a row without a new best one; 0: never"""
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """stop at the first evaluation so many seconds after the first update; 0: never"""
    bytes: Annotated[int, Field(ge=0)] = 0
    """stop at the first evaluation after this many bytes to and from devices; 0: never"""
