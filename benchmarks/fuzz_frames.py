"""Frames of a device, by turns honest in all, wrong in one part, or noise: fuzz_server.py sends them."""

import math
import struct
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import msgpack
import numpy as np

from edgeflock.server.engine.outcomes import SEQUENCE_WINDOW
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.wire import MAX_LEVEL

LAYOUT = Layout.from_shapes(
    [
        ("conv.weight", (8, 5)),
        ("conv.bias", (8,)),
        ("scale", ()),
        ("dense.weight", (10, 6)),
        ("norm", (4,), True),
    ]
)
"""109 parameters and four running statistics."""

_UPDATE = 5


def framed(payload: bytes, first: int = 0x82) -> bytes:
    """Masked with zeros."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)
    return bytes([first]) + length + bytes(4) + payload


@dataclass(slots=True)
class Known:
    """What a device knows of the run, from its session."""

    version: int = 0
    sequence: int = 0
    settled: list[bytes] = field(default_factory=list)
    """Updates that were accepted, as they were sent."""


class Frames:
    """Frames of a device, by turns honest in all, wrong in one part, or noise."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._numbers = np.random.default_rng(random.getrandbits(32))

    def next(self, known: Known) -> bytes:
        """The bytes of one frame."""
        pick = self.random.random()
        if pick < 0.01:
            return framed(self._noise(msgpack.packb(self.update(known))))
        if pick < 0.013:
            return framed(self._record())
        if pick < 0.0135:
            whole = framed(msgpack.packb(self.update(known)))
            return self._noise(whole[:6]) + whole[6:]
        if pick < 0.10:
            return framed(msgpack.packb([3, self._base(known), self._integer()]))
        if pick < 0.13:
            return framed(self._samples())
        if pick < 0.15 and known.settled:
            return self.random.choice(known.settled)
        update = self.update(known)
        for _ in range(self.random.choice((0, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4))):
            self._spoil(update, known)
        return framed(msgpack.packb(update))

    def update(self, known: Known) -> list[Any]:
        """A good one."""
        random, size = self.random, LAYOUT.parameters.size
        where = np.sort(self._numbers.choice(size, random.randint(1, 12), replace=False))
        delta = self._numbers.standard_normal(where.size).astype(np.float32)
        if random.random() < 0.4:
            indices = sparse.encode(where, size)
            coding = random.choice(("f32", "f16", "int8", "codebook4", "sign"))
            mode, index_mode = values.CODINGS[coding].mode, sparse.GOLOMB
            octets = values.encode(delta, LAYOUT.parameters.counts(where), coding)
        else:
            index_mode, mode = 1, 0
            indices, octets = where.astype("<u4").tobytes(), delta.astype("<f4").tobytes()
        statistics = np.zeros(LAYOUT.buffers, "<f2").tobytes()
        return [
            _UPDATE, known.sequence + 1, known.version, where.size, indices, octets + statistics, -16,
            random.choice((1, 10, 64)), 0, index_mode, mode, None, random.random() < 0.3,
        ]  # fmt: skip

    def _spoil(self, update: list[Any], known: Known) -> None:
        """Make one part of it another."""
        random = self.random
        at = random.choice((2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 7, 8, 9, 10))
        if random.random() < 0.005:
            update[random.randrange(1, 13)] = self._anything()
        if random.random() < 0.03:
            at = random.choice((1, 1, 1, 11, 12))
        if at == 1:
            last = known.sequence
            update[1] = random.choice((0, last, last + 2, last + SEQUENCE_WINDOW, last + 1 + SEQUENCE_WINDOW,
                                       (1 << 63) - 1, 1 << 63, self._integer()))  # fmt: skip
        elif at == 2:
            update[2] = self._base(known)
        elif at == 3:
            update[3] = random.choice(
                (0, random.randrange(13), LAYOUT.size, LAYOUT.size + 1, self._integer())
            )
        elif at in (4, 5):
            update[at] = self._noise(update[at]) if isinstance(update[at], bytes) else b""
        elif at == 6:
            update[6] = random.choice((None, 0, MAX_LEVEL, -MAX_LEVEL, MAX_LEVEL + 1, 0.5, math.nan))
        elif at == 7:
            update[7] = random.choice((0, 1, 65_536, 65_537, self._integer()))
        elif at == 8:
            update[8] = self._integer()
        elif at in (9, 10):
            update[at] = random.choice((0, 1, 2, 3, 4, 5, 6, 255, self._integer()))
        elif at == 11:
            update[11] = random.choice(({}, {"depth": 3}, {"x": math.nan}, {"": ""}, self._anything()))
        else:
            update[12] = random.choice((True, False, 1, None))

    def _noise(self, octets: bytes) -> bytes:
        """Bits flipped, bytes put in, left out, doubled, or the end gone."""
        changed, random = bytearray(octets), self.random
        for _ in range(random.choice((1, 1, 2, 5))):
            place = random.randrange(len(changed) + 1)
            kind = random.randrange(5)
            if kind == 0 and place < len(changed):
                changed[place] ^= 1 << random.randrange(8)
            elif kind == 1 and place < len(changed):
                changed[place] = random.choice((0, 1, 127, 128, 255))
            elif kind == 2:
                changed[place:place] = random.randbytes(random.choice((1, 2, 8)))
            elif kind == 3:
                del changed[place : place + random.choice((1, 2, 8))]
            else:
                del changed[place:]
        return bytes(changed)

    def _base(self, known: Known) -> Any:
        version = known.version
        return self.random.choice((None, 0, version, max(0, version - 1), version + 1, max(0, version - 17),
                                   self._integer()))  # fmt: skip

    def _integer(self) -> int:
        random = self.random
        return random.choice((0, 1, 255, 65_535, 1 << 31, (1 << 63) - 1, random.getrandbits(16)))

    def _anything(self) -> Any:
        return self.random.choice((None, True, -1, 0.5, "text", b"bytes", [], [[[]]], {}, {"a": []}, 1 << 63))

    def _record(self) -> bytes:
        """Any array of anything."""
        random = self.random
        record = [random.randrange(-1, 15), *(self._anything() for _ in range(random.randrange(14)))]
        return cast(bytes, msgpack.packb(record))

    def _samples(self) -> bytes:
        random = self.random
        count = random.choice((0, 1, 3, self._integer()))
        octets = random.random() < 0.5
        x = bytes(random.choice((0, 1, 12, 24)))
        return cast(bytes, msgpack.packb([9, count, octets, x, True, bytes(random.choice((0, 4, 12)))]))
