"""Error feedback: the entries that an update leaves out are kept and added to the next gradient.

Seide, Fu, Droppo, Li and Yu, "1-bit stochastic gradient descent", Interspeech 2014; for sparse updates Stich,
Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018. In a large asynchronous fleet kept entries
are old when they are sent. Kept without decay (feedback 1), they do harm. So the memory decays with its age
in versions of the model: the same setting serves 4 devices and 200. A sent entry leaves the memory
completely, even if the value coding rounded it.
"""

import numpy as np
from numpy.typing import NDArray

Gradient = NDArray[np.float32]

HORIZON = 1000
"""Versions after which the part `feedback` of the memory is left."""


def decay_of(feedback: float, versions: int) -> float:
    """The part of the memory that is left after `versions` versions: feedback^(versions / HORIZON)."""
    return float(feedback ** (max(1, versions) / HORIZON))


def recall(memory: Gradient | None, gradient: Gradient) -> Gradient:
    """Return the gradient plus the memory, if there is one: float32 [P]. The result overwrites `memory`."""
    return gradient if memory is None else np.add(memory, gradient, out=memory)


def remember(corrected: Gradient, sent: NDArray[np.int64] | slice, decay: float) -> Gradient:
    """Return the memory of `corrected` (float32 [P]) after the entries at `sent` were sent."""
    memory = corrected * np.float32(decay)
    memory[sent] = 0
    return memory
