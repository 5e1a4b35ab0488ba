"""The result of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.api.model import Model
from edgeflock.shared.artifacts import ModelInfo, Predictions
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.fields import Inputs, rows
from edgeflock.shared.model.layout import NO_EXTRA_STATE, ExtraState, Layout
from edgeflock.shared.protocol.frames import Evaluation

if TYPE_CHECKING:
    from torch import nn


_BATCH = 200
"""Samples in one prediction batch."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Evaluated:
    """A run with its evaluations."""

    evaluations: Sequence[Evaluation]

    @property
    def loss(self) -> float | None:
        """The last loss, or None if there is no evaluation or the loss is not finite."""
        return self.evaluations[-1].loss if self.evaluations else None

    @property
    def accuracy(self) -> float | None:
        """The last accuracy, 0 to 1, or None if there is no evaluation or the loss has no accuracy."""
        return self.evaluations[-1].accuracy if self.evaluations else None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Result(Evaluated):
    """The model of one version, and the evaluations until then.

    In a complete run, the last evaluation is of this version.
    """

    model: Model
    layout: Layout
    run: str
    version: int
    """The number of updates in the model."""
    theta: NDArray[np.float32]
    """float32 [P + B]: parameters and running statistics. It is the averaged model if the run keeps one."""
    extras: ExtraState = NO_EXTRA_STATE
    """The other entries of the module's state."""
    data: Description | None = None
    """How samples become inputs, and what outputs mean. None: no conversion."""

    @property
    def info(self) -> ModelInfo:
        """The description that travels with the model's file."""
        last = self.evaluations[-1] if self.evaluations else None
        kept = ("version", "loss", "accuracy", "metrics")
        return ModelInfo(
            model=self.model.name,
            layout=self.layout,
            run=self.run,
            version=self.version,
            loss=self.model.loss,
            input=tuple(self.model.input) or None,
            data=self.data,
            evaluation=None if last is None else {key: getattr(last, key) for key in kept},
        )

    def save(self, path: str | Path) -> None:
        """Write the model as a safetensors file. Raises ConfigError if this fails."""
        from edgeflock.shared.artifacts import safetensors_file

        octets = safetensors_file.encode(self.info, self.theta, self.extras)
        try:
            Path(path).write_bytes(octets)
        except OSError as error:
            raise ConfigError(f"save({str(path)!r}): cannot be written: {error.strerror}") from error

    def predict(self, data: Any) -> NDArray[np.generic]:
        """Predict the samples of a data URI or an array, which need no labels.

        Returns class names if there are some, numbers in their own units, or the outputs as they are. Raises
        ConfigError.
        """
        return self.predictions(data).values

    def predictions(self, data: Any) -> Predictions:
        """Like `predict`, with the probability of each class."""
        from edgeflock.shared.artifacts import interpret
        from edgeflock.shared.data.unlabelled import read

        samples = read(data, self.data, self.info.input)
        return interpret(self.outputs(samples.x, samples.count), self.info)

    def outputs(self, x: Inputs, count: int) -> NDArray[np.float32]:
        """Compute the model's outputs for `count` samples x, read as the run reads them: float32 [n, ...]."""
        import torch

        from edgeflock.shared.model.modules.building import apply, to_tensors

        module, parts = self.module(), []
        with torch.no_grad():
            for start in range(0, count, _BATCH):
                parts.append(apply(module, to_tensors(rows(x, slice(start, start + _BATCH)))))
        outputs: NDArray[np.float32] = torch.cat(parts).numpy()
        return outputs

    def module(self) -> "nn.Module":
        """Return a new torch module with these weights, in evaluation mode.

        It takes samples as the run reads them. Regression outputs are in deviations from their mean
        (`data.target`, see `predict`).
        """
        import torch

        from edgeflock.shared.model.modules.building import create_module, seeded_random

        with seeded_random(0), torch.no_grad():
            module = create_module(self.model.name, self.model.make)
            tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            for tensor in self.layout.tensors:
                values = self.theta[tensor.start : tensor.stop].copy()
                tensors[tensor.name].copy_(torch.from_numpy(values).view(tensor.shape))
            for name, constant in self.extras.constants.items():  # also a device's personal layers
                if name in tensors and tensors[name].shape == constant.shape:
                    tensors[name].copy_(torch.from_numpy(constant.copy()))
        return module.eval()
