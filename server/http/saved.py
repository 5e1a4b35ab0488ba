"""A model as a file to download or keep."""

import json
import logging
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from edgeflock.server.ledger import write_atomically
from edgeflock.shared.model.description import Description
from edgeflock.shared.model.layout import NOTHING, Beside, Layout
from edgeflock.shared.protocol.frames import Evaluation

log = logging.getLogger(__name__)

BEST = "best.safetensors"
"""The file in the journal's directory with the model that had the best evaluation."""


def safetensors_of(
    theta: NDArray[np.float32],
    layout: Layout,
    model: str,
    version: int,
    run: str,
    extra: Beside = NOTHING,
    data: Description | None = None,
) -> bytes:
    """A version's theta, float32 [P + B], as a safetensors file whose metadata name the run and version.

    With `beside`, load_state_dict takes the file as it is. `data` goes into the metadata as JSON, by field
    names: how samples become the model's inputs, and what its outputs mean.
    """
    tensors: dict[str, NDArray[np.generic]] = {
        t.name: theta[t.start : t.stop].reshape(t.shape) for t in layout.tensors
    }
    tensors |= {name: tensors[other] for name, other in extra.same.items()}
    tensors |= extra.constants
    metadata = {"model": model, "version": str(version), "run": run}
    if data is not None:
        metadata["data"] = json.dumps(data._asdict())
    return safetensors.numpy.save(tensors, metadata)


def save_best(
    directory: Path,
    layout: Layout,
    model: str,
    run: str,
    extra: Beside,
    data: Description | None,
    theta: NDArray[np.float32],
    evaluation: Evaluation,
) -> None:
    """Write the model to best.safetensors atomically. A write error is logged and stops no run."""
    octets = safetensors_of(theta, layout, model, evaluation.version, run, extra, data)
    try:
        write_atomically(directory / BEST, octets)
    except OSError as error:
        log.warning("the best model so far, of version %d, is not kept: %s", evaluation.version, error)
