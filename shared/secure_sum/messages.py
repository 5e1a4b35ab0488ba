"""The bytes of each step of a round. Their lengths follow from the round, and are checked before decoding.

    step        a device sends                              the server answers
    KEYS        the version, its public keys                Roster
    SHARES      a sealed pair of shares for each neighbour  bits of the neighbours that sent theirs, and these
    MASKED      its masked vector, the digest of its seed   bits of the devices whose vectors arrived
    SIGNATURE   its signature of these bits                 bits of the neighbours that signed, and theirs
    SECRETS     a share for each neighbour and itself       the version that the sum made
    ABANDONED                                               why nothing was summed

A device that sent its shares and no vector gives up its mask key, and all others the seed of their own mask.
"""

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import sparse
from edgeflock.shared.errors import Malformed, Refused
from edgeflock.shared.secure_sum.keys import PUBLIC_BYTES, TAG_BYTES, PublicKeys
from edgeflock.shared.secure_sum.neighbours import neighbours
from edgeflock.shared.secure_sum.shamir import SHARE_BYTES

DIGEST_BYTES = 32
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
VERSION_BYTES = 8
MAX_DEVICES = 10_000
"""In a round."""

_HEAD = struct.Struct("<IIII32s")


class SumStep(IntEnum):
    """A step of a round, in order."""

    KEYS = 0
    SHARES = 1
    MASKED = 2
    SIGNATURE = 3
    SECRETS = 4
    ABANDONED = 5


class SumAbandoned(Exception):
    """A round ends without a sum. The message says why."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The devices of a round as one of them sees it: itself, and its neighbours' keys."""

    size: int
    position: int
    everyone: bytes
    """SHA-256 over all devices' keys in order of positions."""
    ranges: NDArray[np.float32]
    positions: NDArray[np.int64]
    """The entries to sum."""
    keys: Sequence[PublicKeys]
    """Of the neighbours, in order."""

    def encode(self, entries: int) -> bytes:
        """Encode it; the model has so many entries."""
        indices = b"" if self.positions.size == entries else sparse.encode(self.positions, entries)
        head = _HEAD.pack(self.size, self.position, self.positions.size, len(indices), self.everyone)
        return b"".join(
            (head, self.ranges.astype("<f4").tobytes(), indices, *(one.octets for one in self.keys))
        )

    @classmethod
    def decode(cls, octets: bytes, entries: int, tensors: int) -> "Roster":
        """Decode it for a model of so many entries and tensors. Raises Malformed."""
        places = _HEAD.size + 4 * tensors
        if len(octets) < places:
            raise Malformed("a roster of a secure sum is cut short")
        size, position, count, length, everyone = _HEAD.unpack_from(octets)
        if not (position < size <= MAX_DEVICES and 1 <= count <= entries):
            raise Malformed(f"a roster of {size} devices has no position {position} or no {count} entries")
        others = neighbours(position, size)
        check_length(octets, places + length + PUBLIC_BYTES * len(others), "a roster of a secure sum")
        ranges = np.frombuffer(octets[_HEAD.size : places], "<f4").astype(np.float32)
        if not (np.isfinite(ranges) & (ranges >= 0)).all():
            raise Malformed("a roster of a secure sum has a range that is no finite number from 0 on")
        try:
            coded = octets[places : places + length]
            whole = count == entries and not length
            positions = np.arange(entries) if whole else sparse.decode(coded, count, entries, sparse.GOLOMB)
        except Refused as error:
            raise Malformed(f"a roster of a secure sum: {error}") from error
        rows = cut(octets[places + length :], PUBLIC_BYTES)
        return cls(size, position, everyone, ranges, positions, tuple(map(PublicKeys.from_octets, rows)))


def check_length(octets: bytes, length: int, name: str) -> None:
    """Raise Malformed if it has another length."""
    if len(octets) != length:
        raise Malformed(f"{name} has {length} bytes, not {len(octets)}")


def encode_bits(members: Collection[int], order: Sequence[int]) -> bytes:
    """Return a bit for each of `order`: whether it is one of `members`."""
    return np.packbits(np.array([one in members for one in order], np.uint8), bitorder="little").tobytes()


def decode_bits(octets: bytes, order: Sequence[int], name: str) -> list[int]:
    """Return those of `order` whose bit is set. Raises Malformed for another length or a bit beyond."""
    check_length(octets, -(-len(order) // 8), name)
    bits = np.unpackbits(np.frombuffer(octets, np.uint8), bitorder="little")
    if bits[len(order) :].any():
        raise Malformed(f"{name} has bits for devices that are not in the round")
    return [one for one, bit in zip(order, bits, strict=False) if bit]


def encode_items(items: dict[int, bytes], order: Sequence[int]) -> bytes:
    """Encode the items of some of `order`, each of one length: bits, then the items."""
    return encode_bits(items, order) + b"".join(items[one] for one in order if one in items)


def decode_items(octets: bytes, order: Sequence[int], length: int, name: str) -> dict[int, bytes]:
    """Decode what `encode_items` returned, of items of `length` bytes. Raises Malformed."""
    start = -(-len(order) // 8)
    found = decode_bits(octets[:start], order, name)
    check_length(octets, start + length * len(found), name)
    return dict(zip(found, cut(octets[start:], length), strict=True))


def cut(octets: bytes, length: int) -> list[bytes]:
    """Return the parts of `length` bytes."""
    return [octets[place : place + length] for place in range(0, len(octets), length)]
