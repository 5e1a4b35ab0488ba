"""A first model with weights of its own, which devices load instead of computing it."""

from typing import NamedTuple

from edgeflock.shared.errors import Malformed

_DIGEST = 32


class Weights(NamedTuple):
    """A file with the first model (codecs/packed.py): its identity, and whether to load it."""

    digest: bytes
    """SHA-256 of the file, 32 bytes."""
    size: int
    """The size of the file, in bytes."""
    mode: int
    """The value mode of its numbers."""
    load: bool
    """Whether to load it if it is not on the device: false if the whole current model is shorter."""

    @classmethod
    def from_msgpack(cls, value: object, name: str = "weights") -> "Weights":
        """Parse [digest, size, mode, load] as unpacked from msgpack. Raises Malformed for any other value."""
        if type(value) is not list or [type(field) for field in value] != [bytes, int, int, bool]:
            raise Malformed(f"{name} must be [digest, size, mode, load]")
        weights = cls(*value)
        if len(weights.digest) != _DIGEST or weights.size < 0:
            raise Malformed(f"{name} must have a digest of {_DIGEST} bytes, and no size below 0")
        return weights
