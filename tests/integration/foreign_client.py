"""A client written from docs/protocol.md alone.

It uses nothing of Edgeflock and no library but msgpack: plain sockets, lists and loops, so that it shares no
mistake with the code under test.
"""

import asyncio
import base64
import hashlib
import math
import os
import re
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgpack

BINARY, TEXT, CLOSE, PING, PONG = 2, 1, 8, 9, 10
HELLO, WELCOME, PULL, MODEL, UPDATE, RECEIPT, REFUSAL, STOP = range(1, 9)
DENSE, RAW, GOLOMB = range(3)
F32, F16, INT8, CODEBOOK4, SIGN = range(5)


class Device:
    """One WebSocket of a device, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def upgrade(self, token: str | None = None) -> tuple[int, bytes]:
        """(HTTP status, body) of the answer; the body is empty if it is 101."""
        key = base64.b64encode(os.urandom(16))
        lines = [b"GET /v1/session HTTP/1.1", b"Host: server.example", b"Upgrade: websocket"]
        lines += [b"Connection: Upgrade", b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: " + key]
        if token is not None:
            lines.append(b"Authorization: Bearer " + token.encode("latin-1"))
        self.writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        if status == 101:
            proof = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
            assert base64.b64encode(proof) in head
            return status, b""
        length = re.search(rb"(?i)content-length: (\d+)", head)
        return status, await self.reader.readexactly(int(length[1]) if length else 0)

    def send(self, payload: bytes, opcode: int = BINARY) -> None:
        self.writer.write(frame(payload, opcode))

    async def receive(self) -> tuple[int, bytes]:
        """(opcode, payload) of the next message; pings are answered."""
        while True:
            first, length = await self.reader.readexactly(2)
            if length > 125:
                length = int.from_bytes(await self.reader.readexactly(2 if length == 126 else 8), "big")
            payload = await self.reader.readexactly(length)
            if first == 0x80 | PING:
                self.send(payload, PONG)
            else:
                assert first & 0x80, "the server sends no fragments"
                return first & 0x0F, payload

    async def ask(self, record: list[Any]) -> list[Any]:
        self.send(pack(record))
        return await self.answer()

    async def answer(self) -> list[Any]:
        opcode, payload = await self.receive()
        assert opcode == BINARY, payload
        record: list[Any] = msgpack.unpackb(payload)
        return record

    async def closed(self) -> tuple[int, str]:
        """(code, reason) of the server's close frame, which this answers."""
        opcode, payload = await self.receive()
        assert opcode == CLOSE, payload
        self.send(payload[:2], CLOSE)
        return int.from_bytes(payload[:2], "big"), payload[2:].decode()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Device]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Device(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def joined(port: int, name: str, digest: bytes = b"") -> AsyncIterator[tuple[Device, list[Any]]]:
    """(device, Welcome) of a session."""
    async with connected(port) as device:
        assert (await device.upgrade())[0] == 101
        welcome = await device.ask([HELLO, 1, name, digest, {"cores": 4}])
        assert welcome[0] == WELCOME, welcome
        yield device, welcome


def frame(payload: bytes, opcode: int = BINARY, mask: bytes = b"\x37\xfa\x21\x3d") -> bytes:
    n = len(payload)
    size = bytes([0x80 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n)
    if n >= 1 << 16:
        size = b"\xff" + struct.pack(">Q", n)
    masked = bytes(octet ^ mask[i % 4] for i, octet in enumerate(payload))
    return bytes([0x80 | opcode]) + size + mask + masked


def pack(record: Sequence[Any]) -> bytes:
    octets: bytes = msgpack.packb(record, use_single_float=True)
    return octets


def to_bits(octets: bytes) -> str:
    return "".join(f"{octet:08b}" for octet in octets)


def to_bytes(bits: str) -> bytes:
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


def golomb_encode(indices: Sequence[int], m: int) -> bytes:
    b = math.ceil(math.log2(m))
    u = 2**b - m
    prefix = extra = unary = ""
    previous = -1
    for k in indices:
        q, r = divmod(k - previous - 1, m)
        previous = k
        p = r if r < u else (r + u) >> 1
        prefix += f"{p:0{b - 1}b}" if b > 1 else ""
        extra += str((r + u) & 1) if b and p >= u else ""
        unary += "0" * q + "1"
    leb128 = b""
    while m > 127:
        leb128, m = leb128 + bytes([m & 127 | 128]), m >> 7
    return leb128 + bytes([m]) + to_bytes(prefix) + to_bytes(extra) + to_bytes(unary)


def golomb_steps(octets: bytes, count: int) -> list[tuple[str, str, int, str, int, int, int]]:
    """(prefix, extra, r, unary, q, g, k) of each index."""
    m = at = 0
    while True:
        m |= (octets[at] & 127) << 7 * at
        at += 1
        if octets[at - 1] < 128:
            break
    b = math.ceil(math.log2(m))
    u = 2**b - m
    width = max(b - 1, 0)
    bits = to_bits(octets[at:])
    prefixes = [bits[i * width : (i + 1) * width] for i in range(count)]
    bits = bits[(count * width + 7) // 8 * 8 :]
    is_long = [b > 0 and int("0" + p, 2) >= u for p in prefixes]
    extras, bits = iter(bits[: sum(is_long)]), bits[(sum(is_long) + 7) // 8 * 8 :]
    steps, k = [], -1
    for p, long in zip(prefixes, is_long, strict=True):
        extra = next(extras) if long else "-"
        r = 2 * int("0" + p, 2) + int(extra) - u if long else int("0" + p, 2)
        q = bits.index("1")
        unary, bits = bits[: q + 1], bits[q + 1 :]
        k += m * q + r + 1
        steps.append((p, extra, r, unary, q, m * q + r, k))
    assert len(bits) < 8, "nothing but padding follows"
    assert "1" not in bits
    return steps


def golomb_decode(octets: bytes, count: int) -> list[int]:
    return [step[-1] for step in golomb_steps(octets, count)]


def f32(number: float) -> float:
    """Rounded to float32. Sums and products of two float32 survive the detour through double."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def bfloat16(number: float) -> bytes:
    (word,) = struct.unpack("<I", struct.pack("<f", number))
    return struct.pack("<H", (word + 0x7FFF + (word >> 16 & 1)) >> 16)


def from_bfloat16(octets: bytes) -> list[float]:
    return [struct.unpack("<f", b"\0\0" + octets[i : i + 2])[0] for i in range(0, len(octets), 2)]


def shares(layout: list[Any], indices: Sequence[int]) -> list[int]:
    """How many of the indices each tensor has, for those that have any."""
    counts, start = [], 0
    for _, shape in layout:
        stop = start + math.prod(shape)
        counts.append(sum(start <= k < stop for k in indices))
        start = stop
    return [count for count in counts if count]


def encode_values(
    mode: int, numbers: Sequence[float], counts: Sequence[int], levels: Sequence[float]
) -> bytes:
    """`levels` are those of codebook4."""
    if mode in (F32, F16):
        return struct.pack(f"<{len(numbers)}{'f' if mode == F32 else 'e'}", *numbers)
    scales, rest, bits, at = b"", b"", "", 0
    for count in counts:
        magnitudes = [abs(number) for number in numbers[at : at + count]]
        mean, largest = sum(magnitudes) / count, max(magnitudes)
        scale = bfloat16(largest / 127 if mode == INT8 else mean)
        (s,) = from_bfloat16(scale)
        scales += scale
        for number in numbers[at : at + count]:
            rest += struct.pack("b", max(-127, min(127, round(number / s)))) if mode == INT8 else b""
            bits += "1" if number < 0 else "0"
            if mode == CODEBOOK4:
                j = min(range(8), key=lambda j: abs(levels[j] - abs(number) / s))
                bits += f"{j:03b}"
        at += count
    if mode == CODEBOOK4:
        scales += b"".join(bfloat16(level) for level in levels)
    return scales + (rest if mode == INT8 else to_bytes(bits))


def decode_values(mode: int, octets: bytes, counts: Sequence[int]) -> list[float]:
    if mode in (F32, F16):
        return list(struct.unpack(f"<{sum(counts)}{'f' if mode == F32 else 'e'}", octets))
    end = 2 * len(counts)
    scale = [s for s, count in zip(from_bfloat16(octets[:end]), counts, strict=True) for _ in range(count)]
    octets = octets[end:]
    factors: list[float]
    if mode == INT8:
        factors = list(struct.unpack(f"{len(octets)}b", octets))
    elif mode == SIGN:
        factors = [-1.0 if bit == "1" else 1.0 for bit in to_bits(octets)]
    else:
        levels, fields = from_bfloat16(octets[:16]), to_bits(octets[16:])
        signed = levels + [-level for level in levels]
        factors = [signed[int(fields[i : i + 4], 2)] for i in range(0, len(fields), 4)]
    return [f32(s * factor) for s, factor in zip(scale, factors, strict=False)]


class Copy:
    """The device's copy of the model, and what it expects of the server's."""

    def __init__(self, layout: list[Any]) -> None:
        self.layout = layout
        self.size = sum(math.prod(shape) for _, shape in layout)
        self.version = -1
        self.theta: list[float] = []
        self.touched: dict[int, set[int]] = {}
        """Version -> the parameters that the update which made it changed."""

    def take(self, model: list[Any]) -> None:
        _, version, base, index_mode, value_mode, count, indices, octets = model
        assert base in (None, self.version)
        where = decode_indices(index_mode, indices, count, self.size)
        numbers = decode_values(value_mode, octets, shares(self.layout, where))
        if base is None:
            assert len(numbers) == self.size
            self.theta = numbers
        for k, number in zip(where, numbers, strict=True):
            self.theta[k] = number
        self.version = version

    def descend(self, update: list[Any], learning_rate: float, rule: str = "adacomp") -> None:
        """theta[k] - rate[k] * value."""
        _, _, base, index_mode, value_mode, count, indices, octets = update[:8]
        where = decode_indices(index_mode, indices, count, self.size)
        numbers = decode_values(value_mode, octets, shares(self.layout, where))
        for k, number in zip(where, numbers, strict=True):
            since = range(base + 1, self.version + 1)
            sigma = sum(k in self.touched[version] for version in since)
            stale = {"adacomp": sigma, "tau": len(since), "none": 1}[rule]
            rate = f32(f32(learning_rate) / max(1, stale))
            self.theta[k] = f32(self.theta[k] - f32(rate * number))
        self.version += 1
        self.touched[self.version] = {k for k, number in zip(where, numbers, strict=True) if number}


def decode_indices(mode: int, octets: bytes, count: int, size: int) -> list[int]:
    if mode == DENSE:
        assert (count, octets) == (size, b"")
        return list(range(size))
    return list(struct.unpack(f"<{count}I", octets)) if mode == RAW else golomb_decode(octets, count)
