"""A first model of weights of its own, which devices load rather than make."""

from typing import NamedTuple

from edgeflock.shared.errors import Malformed

_DIGEST = 32


class Weights(NamedTuple):
    """A file that holds the first model (codecs/packed.py): what it must be, and whether to load it."""

    digest: bytes
    """SHA-256 of the file, 32 bytes."""
    size: int
    """Of the file, in bytes."""
    mode: int
    """Value mode of the numbers in it."""
    load: bool
    """Whether to load it if it is not there yet: false if the current model, whole, is shorter."""

    @classmethod
    def of(cls, value: object, name: str = "weights") -> "Weights":
        """[digest, size, mode, load] as msgpack unpacked it. Raises Malformed if it is anything else."""
        if type(value) is not list or [type(field) for field in value] != [bytes, int, int, bool]:
            raise Malformed(f"{name} must be [digest, size, mode, load]")
        weights = cls(*value)
        if len(weights.digest) != _DIGEST or weights.size < 0:
            raise Malformed(f"{name} must have a digest of {_DIGEST} bytes, and no size below 0")
        return weights
