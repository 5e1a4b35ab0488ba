"""What steps to come depend on beside theta: what the optimizer remembers. Part of each snapshot."""

from dataclasses import dataclass

import msgpack
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Memory:
    """It says what it is of: whoever goes on otherwise takes of it what is of use."""

    of: str = ""
    """optimizer.Kind.remembers."""
    numbers: NDArray[np.float32] | None = None
    """[P, columns]."""

    def packed(self) -> bytes | None:
        """None: there is nothing to remember."""
        if self.numbers is None:
            return None
        return bytes(msgpack.packb([self.of, self.numbers.shape[1], self.numbers.astype("<f4").tobytes()]))

    @classmethod
    def unpacked(cls, octets: bytes | None, size: int) -> "Memory":
        """Of `size` parameters. Raises ValueError if it cannot be that."""
        if octets is None:
            return cls()
        try:
            of, columns, numbers = msgpack.unpackb(octets)
            return cls(of, np.frombuffer(numbers, "<f4").astype(np.float32).reshape(size, columns))
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise ValueError(f"what the optimizer remembers cannot be read: {error}") from error
