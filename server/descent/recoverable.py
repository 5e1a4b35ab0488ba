"""Access to the vectors, in this process or in model shards. Lost vectors are restored."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.part import Part, Vectors
from edgeflock.server.descent.step import Index
from edgeflock.shared.errors import EdgeflockError

T = TypeVar("T")

_TRIES = 5
"""How often a call is tried if vectors are lost each time."""


class VectorsLost(EdgeflockError):
    """A part of the vectors is lost."""


class RecoverableVectors:
    """Vectors that are restored if parts are lost. It also implements part.Entries."""

    def __init__(self, size: int) -> None:
        """`size` is P + B. `begin` must be called before use."""
        self.size = size
        """P + B."""
        self.vectors: Vectors
        """The state of each parameter."""
        self.restore: Callable[[VectorsLost], Vectors] | None = None
        """Restores the vectors; None: they cannot be restored."""
        self.restorations = 0
        """How often the vectors were restored."""

    def begin(self, place: Callable[[], Vectors]) -> None:
        """Use the vectors that `place` creates."""
        self.vectors = self.retry(place)

    def __getitem__(self, indices: Index, /) -> NDArray[np.float32]:
        return self.retry(lambda: self.vectors.read(indices))

    @property
    def is_local(self) -> bool:
        return isinstance(self.vectors, Part)

    def flush(self) -> None:
        """Start all applied changes in the processes that hold the vectors."""
        self.retry(lambda: self.vectors.flush())

    def retry(self, read: Callable[[], T]) -> T:
        """Return `read()`.

        If a part of the vectors is lost, restore them and try again. `read` must not have changed anything in
        this process by then. Raises VectorsLost if restoring does not help.
        """
        lost: VectorsLost | None = None
        for _ in range(_TRIES):
            try:
                if lost is not None and self.restore is not None:
                    self.vectors = self.restore(lost)
                    self.restorations += 1
                return read()
            except VectorsLost as error:
                if self.restore is None:
                    raise
                lost = error
        raise lost or VectorsLost()
