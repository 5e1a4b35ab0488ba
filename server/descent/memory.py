"""What steps to come depend on beside theta. Part of each snapshot."""

from dataclasses import dataclass

import msgpack
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class OptimizerMemory:
    """It says what it is of: whoever goes on otherwise takes of it what is of use."""

    of: str = ""
    """optimizer.Kind.remembers."""
    numbers: NDArray[np.float32] | None = None
    """What the optimizer remembers: [P, columns]."""
    gathered: NDArray[np.float32] | None = None
    """The sum of the updates that make a step together with others to come: [P]."""
    waiting: int = 0
    """How many these are."""

    def packed(self) -> bytes | None:
        """None: there is nothing to remember."""
        if self.numbers is None and self.gathered is None:
            return None
        arrays = [
            b"" if one is None else one.astype("<f4").tobytes() for one in (self.numbers, self.gathered)
        ]
        columns = 0 if self.numbers is None else self.numbers.shape[1]
        return bytes(msgpack.packb([self.of, columns, *arrays, self.waiting]))

    @classmethod
    def unpacked(cls, octets: bytes | None, size: int) -> "OptimizerMemory":
        """Of `size` parameters. Raises ValueError if it cannot be that."""
        if octets is None:
            return cls()
        try:
            of, columns, numbers, gathered, waiting = msgpack.unpackb(octets)
            return cls(
                str(of),
                _vector(numbers).reshape(size, columns) if columns else None,
                _vector(gathered).reshape(size) if gathered else None,
                int(waiting),
            )
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise ValueError(f"what the optimizer remembers cannot be read: {error}") from error


def _vector(octets: bytes) -> NDArray[np.float32]:
    return np.frombuffer(octets, "<f4").astype(np.float32)
