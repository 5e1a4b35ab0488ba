"""Vectors of integers that are summed, their masks, and their bytes.

A vector has a number for each summed entry of the model, modulo 2^width, and then a few counts modulo 2^32.
A mask is a stream of ChaCha20 (RFC 8439) under a seed that is used once. Its integers are uniform, so a
masked vector says nothing about the vector.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.uint32]

_COUNT_BYTES = 4


@dataclass(frozen=True, slots=True)
class VectorShape:
    """The vectors of one round."""

    entries: int
    width: int
    """Bits of an entry on the wire, 1 to 32."""
    counts: int

    @property
    def size(self) -> int:
        return self.entries + self.counts

    @property
    def octets(self) -> int:
        """The bytes of a vector on the wire."""
        return -(-self.entries * self.width // 8) + _COUNT_BYTES * self.counts

    def reduce(self, vector: Vector) -> Vector:
        """Take the entries modulo 2^width, in place: uint32 [entries + counts]."""
        vector[: self.entries] &= np.uint32((1 << self.width) - 1)
        return vector

    def pack(self, vector: Vector) -> bytes:
        """Encode a reduced vector: `width` bits for each entry, then the counts, little-endian."""
        entries = vector[: self.entries]
        places = np.arange(self.width, dtype=np.uint32)
        bits = ((entries[:, None] >> places) & np.uint32(1)).astype(np.uint8)
        counts = vector[self.entries :].astype("<u4").tobytes()
        return np.packbits(bits.reshape(-1), bitorder="little").tobytes() + counts

    def unpack(self, octets: bytes) -> Vector:
        """Decode what `pack` returned, of exactly `octets` bytes."""
        end = len(octets) - _COUNT_BYTES * self.counts
        bits = np.unpackbits(
            np.frombuffer(octets, np.uint8, end), count=self.entries * self.width, bitorder="little"
        )
        entries = np.zeros(self.entries, np.uint32)
        for place, column in enumerate(bits.reshape(self.entries, self.width).T):
            entries |= column.astype(np.uint32) << np.uint32(place)
        return np.concatenate((entries, np.frombuffer(octets, "<u4", offset=end).astype(np.uint32)))

    def mask(self, seed: bytes) -> Vector:
        """Return the mask of a seed of 32 bytes: uint32 [entries + counts]."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        size = 2 if self.width <= 16 else 4
        stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
        octets = stream.update(bytes(size * self.entries + _COUNT_BYTES * self.counts))
        entries = np.frombuffer(octets, f"<u{size}", self.entries).astype(np.uint32)
        counts = np.frombuffer(octets, "<u4", offset=size * self.entries).astype(np.uint32)
        return self.reduce(np.concatenate((entries, counts)))


def centre(entries: Vector, width: int) -> NDArray[np.int64]:
    """Return sums modulo 2^width as integers from -2^(width - 1) on."""
    half = 1 << (width - 1)
    return ((entries.astype(np.int64) + half) & ((1 << width) - 1)) - half
