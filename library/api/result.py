"""What a run came to."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeflock.api.model import Model
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.layout import NOTHING, Beside, Layout
from edgeflock.shared.protocol.frames import Evaluation

if TYPE_CHECKING:
    from torch import nn


_AT_ONCE = 200
"""Samples that are predicted together."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Evaluated:
    """A run, by its evaluations."""

    evaluations: Sequence[Evaluation]

    @property
    def loss(self) -> float | None:
        """Of the last evaluation; None if there is none, or it is no number."""
        return self.evaluations[-1].loss if self.evaluations else None

    @property
    def accuracy(self) -> float | None:
        """Of the last evaluation, 0 to 1; None if there is none, or the loss has none."""
        return self.evaluations[-1].accuracy if self.evaluations else None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Result(Evaluated):
    """The model of one version, and the evaluations until then: of a run that is complete the last one is of
    this version.
    """

    model: Model
    layout: Layout
    run: str
    version: int
    """How many updates made it."""
    theta: NDArray[np.float32]
    """float32 [P + B]: parameters and running statistics; the average, if the run keeps one."""
    beside: Beside = NOTHING
    """What the module's state has beside these."""
    data: Description | None = None
    """How samples become what the module takes, and what its outputs stand for; None: as they are."""

    def save(self, path: str | Path) -> None:
        """Write it as a safetensors file. Raises ConfigError if that cannot be written."""
        from edgeflock.server.http.saved import safetensors_of

        named = self.model.name, self.version, self.run
        octets = safetensors_of(self.theta, self.layout, *named, self.beside, self.data)
        try:
            Path(path).write_bytes(octets)
        except OSError as error:
            raise ConfigError(f"save({str(path)!r}): cannot be written: {error.strerror}") from error

    def predict(self, data: str) -> NDArray[np.generic]:
        """What the model says of the samples that a data URI names, read as the run reads them: names of
        classes if they have some, numbers in their own units, or outputs as they are. Raises ConfigError.
        """
        import torch

        from edgeflock.shared.data import datasets
        from edgeflock.shared.model.fields import rows
        from edgeflock.shared.model.torch_module import applied, tensors_of

        samples, module = datasets.opened(data, "test", self.data), self.module()
        with torch.no_grad():
            parts = [
                applied(module, tensors_of(rows(samples.x, slice(at, at + _AT_ONCE))))
                for at in range(0, len(samples), _AT_ONCE)
            ]
        outputs: NDArray[np.float32] = torch.cat(parts).numpy()
        if self.data is not None and self.data.labels:
            names: NDArray[np.generic] = np.array(self.data.labels)[np.asarray(outputs.argmax(axis=1))]
            return names
        if self.data is not None and self.data.target:
            mean, deviation = self.data.target
            return np.asarray(outputs * np.float32(deviation) + np.float32(mean))
        return outputs

    def module(self) -> "nn.Module":
        """A torch module of its own with these weights, ready to predict: samples as a data URI of the run's
        server reads them, and numbers in deviations from their mean, which `data.target` has (`predict`).
        """
        import torch

        from edgeflock.shared.model.torch_module import made, random_of

        with random_of(0), torch.no_grad():
            module = made(self.model.name, self.model.make)
            tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            for tensor in self.layout.tensors:
                values = self.theta[tensor.start : tensor.stop].copy()
                tensors[tensor.name].copy_(torch.from_numpy(values).view(tensor.shape))
        return module.eval()
