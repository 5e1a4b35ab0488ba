"""A model as the file that people take along."""

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from edgeflock.shared.model.layout import NOTHING, Beside, Layout


def safetensors_of(
    theta: NDArray[np.float32],
    layout: Layout,
    model: str,
    version: int,
    run: str,
    beside: Beside = NOTHING,
) -> bytes:
    """theta, float32 [P + B], of a version of a run, as a safetensors file that says so.

    With all that is `beside` it, load_state_dict takes it as it is.
    """
    tensors: dict[str, NDArray[np.generic]] = {
        t.name: theta[t.start : t.stop].reshape(t.shape) for t in layout.tensors
    }
    tensors |= {name: tensors[other] for name, other in beside.same.items()}
    tensors |= beside.constants
    return safetensors.numpy.save(tensors, {"model": model, "version": str(version), "run": run})
