"""Error feedback: what an update leaves out is not lost, but kept and added to the next gradient.

Seide, Fu, Droppo, Li and Yu, "1-bit stochastic gradient descent", Interspeech 2014; for sparse updates Stich,
Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018. In a large asynchronous fleet what is kept
is old when it is sent, and kept whole (feedback 1) it does harm. So the memory fades with its age, which is
counted in versions of the model: the same setting serves 4 devices and 200. An entry that is sent leaves the
memory for good, whatever the value coding made of it.
"""

import numpy as np
from numpy.typing import NDArray

Gradient = NDArray[np.float32]

HORIZON = 1000
"""Versions after which `feedback` is the part of the memory that is left."""


def decay_of(feedback: float, versions: int) -> float:
    """The part of the memory that is left after so many versions: feedback^(versions / HORIZON)."""
    return float(feedback ** (max(1, versions) / HORIZON))


def recall(memory: Gradient | None, gradient: Gradient) -> Gradient:
    """The gradient with what is remembered added: float32 [P]. Of a memory it takes the vector."""
    return gradient if memory is None else np.add(memory, gradient, out=memory)


def remember(corrected: Gradient, sent: NDArray[np.int64] | slice, decay: float) -> Gradient:
    """What to remember of `corrected` (float32 [P]) once the entries at `sent` are on their way."""
    memory = corrected * np.float32(decay)
    memory[sent] = 0
    return memory
