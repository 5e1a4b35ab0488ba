"""A model as ONNX graphs, for devices without torch."""

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgeflock.api.data import Data, dataset
from edgeflock.shared.data import datasets
from edgeflock.shared.environments import is_environment, open_environment
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.fields import Inputs, rows
from edgeflock.shared.model.losses import scales_targets

if TYPE_CHECKING:
    from edgeflock.shared.model.modules.building import Make

_ROWS = 8
"""The number of samples in a trace. The graphs do not depend on it."""


@dataclass(frozen=True, slots=True)
class Graphs:
    """A training step and an evaluation, as serialised ONNX models."""

    step: bytes
    evaluation: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the step in hex, the value of client.graph_digest on a device."""
        return sha256(self.step).hexdigest()

    def save(self, directory: str | Path) -> list[Path]:
        """Write step.onnx and evaluation.onnx to `directory`. Raises ConfigError if this fails."""
        folder = Path(directory)
        written = {folder / "step.onnx": self.step, folder / "evaluation.onnx": self.evaluation}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path, octets in written.items():
                path.write_bytes(octets)
        except OSError as error:
            raise ConfigError(f"{str(directory)!r} cannot be written: {error.strerror}") from error
        return list(written)


def export_graphs(module: str, loss: str, make: "Make | None", data: Data | str) -> Graphs:
    """Return the graphs of a module, traced with a few samples of `data`.

    The import string `module` names it, or `make` builds it. Raises ConfigError or NotExportable.
    """
    from edgeflock.server.training_graph.export import export_model

    x: Inputs
    y: NDArray[np.generic]
    if isinstance(data, str) and is_environment(data):
        x, y = open_environment(data).example(_ROWS)
    elif isinstance(data, str | os.PathLike):
        samples = datasets.open_stored(os.fspath(data), "test", scales_targets=scales_targets(loss))
        x, y = rows(samples.x, slice(_ROWS)), samples.y[:_ROWS]
    else:
        given = dataset(data, "edgeflock.Model.graphs(data)")
        x, y = given.x[:_ROWS], given.y[:_ROWS]
    exported = export_model(module, loss, x, y, make)
    return Graphs(exported.step, exported.evaluation)
