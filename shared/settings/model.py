"""[model]: what is trained."""

import json
import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from edgeflock.shared.model.lora import Lora
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.settings.choices import call_of
from edgeflock.shared.settings.settings import Section, split_list

ARRAYS = "arrays:"
"""The prefix of a model that is a file of its initial arrays."""


class LoraSettings(Section):
    """Low-rank fine-tuning of linear layers: model.lora = {rank = 8, alpha = 16, targets = ["*.q"]}."""

    rank: Annotated[int, Field(ge=1, le=1 << 16)] = 8
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 16.0
    targets: list[str] = []
    base: Literal["f32", "int8"] = "f32"

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        if not self.targets and (self.rank, self.alpha, self.base) != (8, 16.0, "f32"):
            raise ValueError('lacks targets: names or patterns of linear layers, e.g. ["*.q", "*.v"]')
        return self


class ModelSettings(Section):
    """What is trained."""

    module: str = "edgeflock.client.zoo:DigitsCNN"
    """model to train: package.module:Name, or Name(argument=value, ...); or arrays:FILE, of .npz or
    .safetensors, for devices' own apps"""
    evaluate: str = ""
    """for arrays: package.module:function that gets a dict of them and returns the loss or (loss, accuracy);
    empty: no evaluation"""
    weights: str = ""
    """what a run starts from: a safetensors file, or run:DIRECTORY@best, @last or @VERSION of another run;
    empty: the module's own initial weights"""
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    """seed of the model's initial weights"""
    personal: list[str] = []
    """parameters that each device trains for itself and never sends: names or patterns such as head.*; empty:
    none"""
    lora: LoraSettings = LoraSettings()
    """trains low-rank adapters and freezes all else: {rank = 8, alpha = 16, targets = ["*.q", "*.v"]}, whose
    targets are names or patterns of linear layers; no targets: trains all; base = "int8": frozen matrices
    have eight bits"""
    loss: Annotated[str, call_of(LOSSES, "model.loss")] = "cross_entropy"
    """loss to minimize: cross_entropy, bce, mse, huber, l1, with arguments as in
    cross_entropy(label_smoothing=0.1); next_token for a language model; a2c or ppo for a policy that acts; or
    package.module:name from (outputs, batch) to a scalar"""
    metrics: list[str] = []
    """what else to compute at each evaluation: accuracy, topk(k=5), f1, auroc, mae, r2, perplexity (extra
    metrics); or package.module:name from (outputs, targets) to a number"""
    data: str = "digits:"
    """URI of the held-out data for evaluations; gym:NAME: evaluate by episodes of it; empty: no evaluation on
    data"""
    input: Annotated[list[Annotated[int, Field(ge=1, le=1 << 24)]], Field(max_length=8)] = []
    """shape of one sample, e.g. [1, 28, 28]; empty: that of model.data, or unknown"""

    @property
    def arrays(self) -> str:
        """The file of initial arrays; empty if the model is a module."""
        return self.module.removeprefix(ARRAYS) if self.module.startswith(ARRAYS) else ""

    _personal_from_one_line = field_validator("personal", mode="before")(split_list)

    @field_validator("metrics", mode="before")
    @classmethod
    def _metrics_from_one_line(cls, metrics: object) -> object:
        """Split text of the environment or --set: names with commas between, or JSON."""
        if not isinstance(metrics, str):
            return metrics
        if metrics.lstrip().startswith("["):
            return _json(metrics, '["f1", "topk(k=3)"]')
        return [text.strip() for text in re.split(r",(?![^(]*\))", metrics) if text.strip()]

    @field_validator("lora", mode="before")
    @classmethod
    def _from_json(cls, value: object) -> object:
        """Parse text of the environment or --set as JSON."""
        return _json(value or "{}", '{"rank": 8, "targets": ["*.q"]}') if isinstance(value, str) else value

    @property
    def adapters(self) -> Lora | None:
        """`lora` as modules take it; None: all parameters are trained."""
        lora = self.lora
        return Lora(lora.rank, lora.alpha, tuple(lora.targets), lora.base == "int8") if lora.targets else None

    @model_validator(mode="after")
    def _check_lora(self) -> Self:
        if self.adapters and self.arrays:
            raise ValueError("model.lora adapts layers of a torch module, and arrays have none; leave it out")
        return self

    @field_validator("input", mode="before")
    @classmethod
    def _from_one_line(cls, sizes: object) -> object:
        """Split text of the environment or --set: sizes with commas between."""
        if not isinstance(sizes, str):
            return sizes
        named = [size.strip() for size in sizes.strip("[ ]").split(",") if size.strip()]
        if not all(size.isascii() and size.isdecimal() for size in named):
            raise ValueError("must be the sizes of one sample, e.g. 16 or 1,28,28")
        return [int(size) for size in named]


def _json(text: str, example: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"must be JSON, e.g. {example}") from error
