"""The vectors of a version, wherever they are kept. Where parts of them may get lost, they are made again."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent.part import Part, Vectors
from edgeflock.server.descent.step import Where
from edgeflock.shared.errors import EdgeflockError

T = TypeVar("T")

_TRIES = 5
"""So often something is asked of vectors that get lost each time."""


class VectorsLost(EdgeflockError):
    """A part of the vectors is lost, wherever it was."""


class RecoverableVectors:
    """Also theta where one looks (part.Entries), whatever gets lost meanwhile."""

    def __init__(self, size: int) -> None:
        """Of `size` numbers; `begin` says where they are."""
        self.size = size
        """P + B."""
        self.vectors: Vectors
        """All that is kept of each parameter."""
        self.restore: Callable[[VectorsLost], Vectors] | None = None
        """Makes the vectors again, if parts of them may get lost."""
        self.restored = 0
        """How often that was needed."""

    def begin(self, place: Callable[[], Vectors]) -> None:
        """Go on from what `place` makes."""
        self.vectors = self.surely(place)

    def __getitem__(self, where: Where, /) -> NDArray[np.float32]:
        return self.surely(lambda: self.vectors.entries[where])

    @property
    def is_here(self) -> bool:
        """Whether the vectors are in this process."""
        return isinstance(self.vectors, Part)

    def largest(self) -> float:
        """The largest |theta_k| of what is trained."""
        return self.surely(lambda: self.vectors.largest())

    def flush(self) -> None:
        """See to it that all that was applied is under way to wherever the vectors are."""
        self.surely(lambda: self.vectors.flush())

    def surely(self, look: Callable[[], T]) -> T:
        """What it comes to. Where a part of the vectors is lost, they are made again, and it is tried anew:
        until then it has changed nothing here. Raises VectorsLost if that helps nothing.
        """
        lost = VectorsLost()
        for again in range(_TRIES):
            try:
                if again and self.restore is not None:
                    self.vectors = self.restore(lost)
                    self.restored += 1
                return look()
            except VectorsLost as error:
                if self.restore is None:
                    raise
                lost = error
        raise lost
