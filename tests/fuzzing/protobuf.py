"""Protobuf messages with something wrong: mutated as a tree of fields, or as bytes.

Knows the wire format only loosely, on purpose: what the reader under test refuses this one must still write.
"""

from dataclasses import dataclass
from random import Random

ODD_FIELDS = (3, 4, 6, 9, 10, 13, 14, 15, 16, 20, 21, 22, 25, 26, 1 << 20)
"""Where ONNX keeps what no training step has: subgraphs, external data, functions, metadata."""

ODD_NUMBERS = (0, 1, 2, 5, 8, 20, 127, 128, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)

WORDS = (b"", b"location", b"If", b"Loop", b"Scan", b"EPContext", b"com.microsoft", b"/etc/passwd", b"Expand")


@dataclass
class Piece:
    """A field."""

    number: int
    wire_type: int
    value: int | bytes | list["Piece"]
    padding: int = 0
    """Bytes by which its tag and length are longer than they need be."""


def taken_apart(octets: bytes, depth: int = 0) -> list[Piece] | None:
    """The fields of a message, down to what is none; None if it is none."""
    pieces: list[Piece] = []
    at = 0
    while at < len(octets):
        tag, at = _number(octets, at)
        if at < 0 or tag >> 3 == 0:
            return None
        if tag & 7 == 0:
            value, at = _number(octets, at)
            if at < 0:
                return None
            pieces.append(Piece(tag >> 3, 0, value))
            continue
        length, at = _number(octets, at) if tag & 7 == 2 else (4, at)
        if tag & 7 not in (2, 5) or at < 0 or at + length > len(octets):
            return None
        part = octets[at : at + length]
        at += length
        inner = taken_apart(part, depth + 1) if tag & 7 == 2 and part and depth < 6 else None
        pieces.append(Piece(tag >> 3, tag & 7, part if inner is None else inner))
    return pieces


def put_together(pieces: list[Piece]) -> bytes:
    return b"".join(map(_octets, pieces))


def mutated(pieces: list[Piece], random: Random) -> None:
    """Change one field, somewhere."""
    place = pieces
    while True:
        inner = [piece.value for piece in place if isinstance(piece.value, list) and piece.value]
        if not inner or random.random() < 0.3:
            break
        place = random.choice(inner)
    if not place:
        return
    at = random.randrange(len(place))
    piece = place[at]
    what = random.randrange(9)
    if what == 0:
        piece.padding = random.randint(1, 9)
    elif what == 1:
        place.insert(random.randrange(len(place) + 1), piece)
    elif what == 2:
        del place[at]
    elif what == 3:
        piece.number = random.choice((*ODD_FIELDS, piece.number + 1))
    elif what == 4:
        piece.wire_type = random.choice((0, 1, 2, 3, 4, 5, 6, 7))
    elif what == 5:
        place.append(Piece(random.choice(ODD_FIELDS), 2, random.choice(WORDS)))
    elif what == 6:
        place[at] = random.choice(place)
    elif isinstance(piece.value, int):
        piece.value = random.choice((*ODD_NUMBERS, piece.value ^ 1 << random.randrange(64)))
    elif isinstance(piece.value, bytes):
        piece.value = random.choice(
            (*WORDS, piece.value * 2, piece.value[:-1], with_damage(piece.value, random))
        )
    else:
        random.shuffle(piece.value)


def with_damage(octets: bytes, random: Random) -> bytes:
    """Some bytes changed, gone, doubled or cut off."""
    damaged = bytearray(octets)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(damaged) + 1)
        what = random.randrange(4)
        if what == 0 and damaged:
            damaged[at % len(damaged)] ^= 1 << random.randrange(8)
        elif what == 1:
            damaged[at:at] = random.randbytes(random.randint(1, 4))
        elif what == 2:
            del damaged[at : at + random.randint(1, 8)]
        elif random.random() < 0.2:
            del damaged[at:]
    return bytes(damaged)


def _octets(piece: Piece) -> bytes:
    head = _varint(piece.number << 3 | piece.wire_type, piece.padding)
    if isinstance(piece.value, int):
        return head + _varint(piece.value)
    body = put_together(piece.value) if isinstance(piece.value, list) else piece.value
    return head + (_varint(len(body), piece.padding) if piece.wire_type == 2 else b"") + body


def _varint(number: int, padding: int = 0) -> bytes:
    octets = bytearray()
    while number > 0x7F or padding > 0:
        octets.append(number & 0x7F | 0x80)
        padding -= number <= 0x7F
        number >>= 7
    octets.append(number)
    return bytes(octets)


def _number(octets: bytes, at: int) -> tuple[int, int]:
    """(number, where it ends); -1 for the end if there is none."""
    number = 0
    for length in range(10):
        if at + length >= len(octets):
            return 0, -1
        number |= (octets[at + length] & 0x7F) << 7 * length
        if octets[at + length] < 0x80:
            return number, at + length + 1
    return 0, -1
