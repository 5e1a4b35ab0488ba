"""A model as the file that people take along."""

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout


def safetensors_of(theta: NDArray[np.float32], layout: Layout, model: str, version: int, run: str) -> bytes:
    """theta, float32 [P + B], of a version of a run, as a safetensors file that says so."""
    tensors = {t.name: theta[t.start : t.stop].reshape(t.shape) for t in layout.tensors}
    return safetensors.numpy.save(tensors, {"model": model, "version": str(version), "run": run})
