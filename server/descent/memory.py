"""The optimizer's state: all that later steps depend on, except theta. Part of each snapshot."""

from dataclasses import dataclass, replace

import msgpack
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Memory = NDArray[np.float32]
"""The state, one row a parameter: [P, columns]."""


@dataclass(frozen=True, slots=True)
class OptimizerMemory:
    """The state of an optimizer, with its kind, so that another optimizer can reuse the parts that fit."""

    kind: str = ""
    """OptimizerKind.state."""
    numbers: Memory | None = None
    """The optimizer's numbers."""
    gathered: Vector | None = None
    """The sum of the updates that wait for others to make a step: [P]."""
    waiting: int = 0
    """How many updates wait."""
    noise: bytes = b""
    """TreeNoise.pack, in a private run."""

    def pack(self) -> bytes | None:
        """Encode the state. None: there is none."""
        if self.numbers is None and self.gathered is None and not self.noise:
            return None
        arrays = [
            b"" if one is None else one.astype("<f4").tobytes() for one in (self.numbers, self.gathered)
        ]
        columns = 0 if self.numbers is None else self.numbers.shape[1]
        noise = [self.noise] if self.noise else []
        return bytes(msgpack.packb([self.kind, columns, *arrays, self.waiting, *noise]))

    def without_waiting(self) -> "OptimizerMemory":
        """Return the state without the updates that wait, which then never count."""
        return replace(self, gathered=None if self.gathered is None else 0 * self.gathered, waiting=0)

    @classmethod
    def unpack(cls, octets: bytes | None, size: int) -> "OptimizerMemory":
        """Decode the state of `size` parameters. Raises ValueError if it is invalid."""
        if octets is None:
            return cls()
        try:
            kind, columns, numbers, gathered, waiting, *noise = msgpack.unpackb(octets)
            return cls(
                str(kind),
                _vector(numbers).reshape(size, columns) if columns else None,
                _vector(gathered).reshape(size) if gathered else None,
                int(waiting),
                b"".join(noise),
            )
        except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
            raise ValueError(f"the optimizer's state in the journal cannot be read: {error}") from error


def _vector(octets: bytes) -> Vector:
    return np.frombuffer(octets, "<f4").astype(np.float32)
