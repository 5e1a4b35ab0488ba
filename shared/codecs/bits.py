"""Pack fixed-width bit fields to bytes and back, most significant bit first, vectorised; inflate streams."""

import zlib

import numpy as np
from numpy.typing import NDArray


def packed_size(count: int, width: int) -> int:
    """The number of bytes that `count` fields of `width` bits take, padded to a whole byte."""
    return (count * width + 7) // 8


def pack(fields: NDArray[np.unsignedinteger | np.signedinteger], width: int) -> bytes:
    """The low `width` (0..32) bits of each field, one after the other, the last byte zero-padded."""
    if width == 0 or fields.size == 0:
        return b""
    if width == 1:
        return np.packbits(fields & 1).tobytes()
    size = 8 if width <= 8 else 16 if width <= 16 else 32
    columns = (fields.astype(np.int64) << (size - width)).astype(f">u{size // 8}").view(np.uint8)
    return np.packbits(np.unpackbits(columns.reshape(-1, size // 8), axis=1, count=width)).tobytes()


def unpack(octets: bytes | memoryview, count: int, width: int) -> NDArray[np.int64]:
    """int64 [count]: the inverse of `pack`. `octets` must hold packed_size(count, width) bytes."""
    if width == 0 or count == 0:
        return np.zeros(count, np.int64)
    size = 8 if width <= 8 else 16 if width <= 16 else 32
    columns = np.zeros((count, size), np.uint8)
    bits = np.unpackbits(np.frombuffer(octets, np.uint8), count=count * width)
    columns[:, size - width :] = bits.reshape(count, width)
    return np.packbits(columns).view(f">u{size // 8}").astype(np.int64)


def inflate(octets: bytes, size: int) -> bytes | None:
    """Return the `size` bytes of a zlib stream; None if it is invalid or of another length.

    Allocates no more memory than that, whatever the stream announces.
    """
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(octets, size + 1)
    except zlib.error:
        return None
    return inflated if len(inflated) == size and stream.eof and not stream.unused_data else None
