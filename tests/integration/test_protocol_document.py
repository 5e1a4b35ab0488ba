"""docs/protocol.md is true and enough: a client written from it alone trains against the server.

The first half is that client. It uses nothing of Edgeflock and no library but msgpack: plain sockets, lists
and loops, so that it shares no mistake with the code under test.
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
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from edgeflock.server.differences import Differences
from edgeflock.shared import messages, sparse, values, wire
from edgeflock.shared.errors import REFUSALS, RunComplete, SessionRefused
from edgeflock.shared.layout import Layout
from tests.hosting import LAYOUT, RUN, hosting, initial_theta

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


# The document's examples


DOCUMENT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
EXAMPLES = {
    name: bytes.fromhex("".join(line.partition("#")[0] for line in body.splitlines()))
    for name, body in re.findall(r"```hex (\S+)\n(.*?)```", DOCUMENT, re.DOTALL)
}

TINY = [["w", [9, 4]], ["b", [4]]]
TINY_LAYOUT = Layout.of([("w", (9, 4)), ("b", (4,))])
WHERE = [3, 11, 12, 27, 37]
LEVELS = [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4]
NUMBERS = {
    "f32": (F32, [0.5, -0.25, 1, -0.25, -0.125]),
    "f16": (F16, [0.5, -0.25, 1, -0.25, -0.125]),
    "int8": (INT8, [63.5, -0.5, 1, -2, -15.875]),
    "codebook4": (CODEBOOK4, [0.375, -1, 0.5, -0.125, -0.125]),
    "sign": (SIGN, [0.5, -0.5, 0.5, -0.5, -0.125]),
}
CHANGED = golomb_encode([11, 37], 14), struct.pack("<2f", 0.75, -1.5)
SENT = golomb_encode(WHERE, 5), encode_values(CODEBOOK4, NUMBERS["codebook4"][1], [4, 1], LEVELS)
DIGEST = hashlib.sha256(pack(TINY)).digest()[:16]
DIFFERENCE = messages.Model(4, 3, GOLOMB, F32, 2, *CHANGED)
RECORDS: dict[str, tuple[list[Any], messages.Record]] = {
    "hello": ([HELLO, 1, "pi-7", DIGEST, {"cores": 4}], messages.Hello(1, "pi-7", DIGEST, {"cores": 4})),
    "welcome": (
        [WELCOME, 1, RUN, "nets:Tiny", "mse", TINY, 3, 7, 10, 0.125, GOLOMB, CODEBOOK4, 67108864],
        messages.Welcome(1, RUN, "nets:Tiny", "mse", [*TINY], 3, 7, 10, 0.125, 2, 3, 1 << 26),
    ),
    "pull": ([PULL, None], messages.Pull(None)),
    "pull-again": ([PULL, 3], messages.Pull(3)),
    "model": ([MODEL, 4, 3, GOLOMB, F32, 2, *CHANGED], DIFFERENCE),
    "model-unchanged": (
        [MODEL, 3, 3, GOLOMB, F32, 0, golomb_encode([], 1), b""],
        Differences(TINY_LAYOUT, 3).model(np.zeros(40, np.float32), 3),
    ),
    "update": (
        [UPDATE, 8, 3, GOLOMB, CODEBOOK4, 5, *SENT, 0.5, 10, True],
        messages.Update(8, 3, GOLOMB, CODEBOOK4, 5, *SENT, 0.5, 10, True),
    ),
    "receipt": ([RECEIPT, 8, 4, None], messages.Receipt(8, 4, None)),
    "receipt-with-model": (
        [RECEIPT, 8, 4, [MODEL, 4, 3, GOLOMB, F32, 2, *CHANGED]],
        messages.Receipt(8, 4, DIFFERENCE),
    ),
    "refusal": (
        [REFUSAL, "base-expired", "pull again", 8],
        messages.Refusal("base-expired", "pull again", 8),
    ),
    "stop": ([STOP, "the run has its 100 updates"], messages.Stop("the run has its 100 updates")),
}


def test_every_example_is_checked_here() -> None:
    assert set(EXAMPLES) == {*RECORDS, *NUMBERS, "frame", "layout", "digest", "raw", "golomb"}


@pytest.mark.parametrize("name", RECORDS)
def test_record(name: str) -> None:
    array, record = RECORDS[name]
    assert pack(array) == wire.encode(record) == EXAMPLES[name]
    assert msgpack.unpackb(EXAMPLES[name]) == array
    assert wire.decode(EXAMPLES[name]) == record


@pytest.mark.parametrize("name", NUMBERS)
def test_value_stream(name: str) -> None:
    mode, numbers = NUMBERS[name]
    octets, counts = EXAMPLES[name], TINY_LAYOUT.counts(np.array(WHERE))
    assert values.CODINGS[name].mode == mode
    assert encode_values(mode, numbers, shares(TINY, WHERE), LEVELS) == octets
    assert decode_values(mode, octets, shares(TINY, WHERE)) == numbers
    assert values.decode(octets, counts, mode).tolist() == numbers
    if mode != CODEBOOK4:  # whose levels are the sender's choice
        assert values.encode(np.array(numbers, np.float32), counts, name) == octets


def test_index_streams() -> None:
    where = np.array(WHERE)
    assert golomb_encode(WHERE, 5) == sparse.encode(where, 40, GOLOMB) == EXAMPLES["golomb"]
    assert struct.pack("<5I", *WHERE) == sparse.encode(where, 40, RAW) == EXAMPLES["raw"]
    for mode, octets in ((GOLOMB, EXAMPLES["golomb"]), (RAW, EXAMPLES["raw"])):
        assert decode_indices(mode, octets, 5, 40) == sparse.decode(octets, 5, 40, mode).tolist() == WHERE


def test_golomb_stream_decoded_by_hand() -> None:
    rows = re.findall(
        r"^\| \d \| ([01]+) \| ([01-]) \| (\d) \| ([01]+) \| (\d) \| (\d+) \| (\d+) \|$", DOCUMENT, re.M
    )
    steps = [tuple(str(part) for part in step) for step in golomb_steps(EXAMPLES["golomb"], 5)]
    assert rows == steps


@pytest.mark.parametrize("name", values.CODINGS)
def test_foreign_codecs_agree_with_ours_on_random_updates(name: str) -> None:
    random = np.random.default_rng(3)
    for parameter in (1, 2, 3, 5, 8, 300):
        where = np.sort(random.choice(LAYOUT.size, 30, replace=False))
        octets = golomb_encode(where.tolist(), parameter)
        assert sparse.decode(octets, 30, LAYOUT.size, GOLOMB).tolist() == where.tolist()
        assert golomb_decode(sparse.encode(where, LAYOUT.size), 30) == where.tolist()
        numbers = random.standard_normal(30).astype(np.float32)
        octets = values.encode(numbers, LAYOUT.counts(where), name)
        mode, counts = values.CODINGS[name].mode, shares(LAYOUT.shapes(), where.tolist())
        ours = values.decode(octets, LAYOUT.counts(where), mode)
        assert decode_values(mode, octets, counts) == ours.tolist()


def test_layout_and_frame() -> None:
    assert pack(TINY) == EXAMPLES["layout"]
    assert DIGEST == TINY_LAYOUT.digest == EXAMPLES["digest"]
    assert frame(EXAMPLES["pull"]) == EXAMPLES["frame"]
    update = frame(EXAMPLES["update"])
    assert (len(EXAMPLES["update"]), len(update)) == (47, 53), "as the document says"
    assert len(update) == wire.framed_size(47, masked=True)


def test_records_in_the_document_are_those_of_the_code() -> None:
    """Tags, fields and their order."""
    documented = {}
    for section in re.split(r"^#+ ", DOCUMENT, flags=re.M):
        title = re.match(r"(\d) (\w+) \(", section)
        if title:
            rows = re.findall(r"^\| \d+ \| (\w+) \|", section, re.M)
            documented[title[2]] = (int(title[1]), tuple(rows))
    assert documented == {kind.__name__: (tag, kind.__match_args__) for kind, tag in messages.TAGS.items()}


def test_errors_in_the_document_are_those_that_reach_a_device() -> None:
    """All but the inner nodes of the tree and RunComplete, which travels as a Stop."""
    section = DOCUMENT.partition("\n## Errors\n")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (?:(\d+) )?\|", section, re.M))
    leaves = [kind for kind in REFUSALS.values() if not kind.__subclasses__() and kind is not RunComplete]
    closes = {kind.code: str(4000 + kind.status) for kind in leaves if issubclass(kind, SessionRefused)}
    closes["unauthorized"] = "401"
    assert documented == {kind.code: closes.get(kind.code, "") for kind in leaves}


# The client against the server


def update(
    sequence: int, base: int, modes: tuple[int, int], where: list[int], pull: bool = False
) -> list[Any]:
    """An update with a made-up gradient, coded by the foreign client."""
    layout = LAYOUT.shapes()
    numbers = [f32(math.sin(sequence + 7 * k)) for k in where]
    indices = {
        DENSE: b"",
        RAW: struct.pack(f"<{len(where)}I", *where),
        GOLOMB: golomb_encode(where, 6),
    }[modes[0]]
    octets = encode_values(modes[1], numbers, shares(layout, where), LEVELS)
    return [UPDATE, sequence, base, *modes, len(where), indices, octets, 0.5, 10, pull]


def bits(numbers: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


EVERY = list(range(LAYOUT.size))
SOME = [0, 4, 39, 40, 48, 49, 108, 109, 118]
SCRIPT = [
    ((RAW, F32), SOME),
    ((GOLOMB, CODEBOOK4), [4, 5, 47, 48, 60, 118]),
    ((GOLOMB, SIGN), SOME),
    ((RAW, INT8), [2, 4, 48, 110]),
    ((DENSE, F16), EVERY),
    ((GOLOMB, F16), [0, 118]),
    ((DENSE, SIGN), EVERY),
    ((GOLOMB, INT8), []),
]


@pytest.mark.parametrize(("rule", "lag"), [("adacomp", 0), ("adacomp", 3), ("tau", 2), ("none", 3)])
async def test_server_computes_what_the_document_says(rule: str, lag: int, tmp_path: Path) -> None:
    """Every coding, fresh and computed from a version `lag` versions old: float32 for float32 the same."""
    settings = ["coordination.learning_rate=0.3", f"coordination.rule={rule}"]
    async with hosting(tmp_path, *settings) as server:
        async with joined(server.port, "pi") as (device, welcome):
            assert welcome[1:3] == [1, RUN]
            assert welcome[6:8] == [0, 0]
            copy = Copy(welcome[5])
            copy.take(await device.ask([PULL, None]))
            assert bits(copy.theta) == initial_theta(LAYOUT.size).tobytes()
            for sequence, (modes, where) in enumerate(SCRIPT, 1):
                question = update(sequence, max(0, copy.version - lag), modes, where)
                assert await device.ask(question) == [RECEIPT, sequence, sequence, None]
                copy.descend(question, 0.3, rule)
                whole = await device.ask([PULL, None])
                assert whole[1:6] == [sequence, None, DENSE, F32, LAYOUT.size]
                assert whole[7] == bits(copy.theta), modes
        digest = hashlib.sha256(pack(welcome[5])).digest()[:16]
        async with joined(server.port, "pi", digest) as (_, again):
            assert again[2] == RUN
            assert again[6:8] == [len(SCRIPT), len(SCRIPT)]


async def test_differences_carry_new_values(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, "coordination.learning_rate=0.3") as server,
        joined(server.port, "pi") as (device, welcome),
        joined(server.port, "jetson") as (other, _),
    ):
        copy, expected = Copy(welcome[5]), Copy(welcome[5])
        for each in (copy, expected):
            each.take(await device.ask([PULL, None]))
        question = update(1, 0, (GOLOMB, CODEBOOK4), [4, 48, 110], pull=True)
        kind, sequence, version, model = await device.ask(question)
        assert (kind, sequence, version) == (RECEIPT, 1, 1)
        assert model[:3] == [MODEL, 1, 0]
        assert model[3] == GOLOMB, "a difference"
        copy.take(model)
        expected.descend(question, 0.3)
        assert bits(copy.theta) == bits(expected.theta)

        for question in (update(5, 1, (RAW, F32), [4, 9]), update(6, 1, (RAW, SIGN), [9, 49, 118])):
            await other.ask(question)
            expected.descend(question, 0.3)
        model = await device.ask([PULL, 1])
        assert model[:6] == [MODEL, 3, 1, GOLOMB, F32, 4], "the union of both"
        copy.take(model)
        assert bits(copy.theta) == bits(expected.theta)
        assert await device.ask([PULL, 3]) == [MODEL, 3, 3, GOLOMB, F32, 0, b"\x01", b""]


async def test_a_resend_gets_the_same_receipt(tmp_path: Path) -> None:
    async with hosting(tmp_path) as server:
        question = update(3, 0, (RAW, F32), SOME)
        async with joined(server.port, "pi") as (device, _):
            receipt = await device.ask(question)
            assert receipt == [RECEIPT, 3, 1, None]
            assert (await device.ask(update(8, 1, (GOLOMB, SIGN), SOME)))[1:3] == [8, 2]
            before = server.engine.theta()[1].tobytes()
            assert await device.ask(question) == receipt
        async with joined(server.port, "pi") as (device, welcome):
            assert welcome[7] == 8
            assert await device.ask(question) == receipt
            _, _, version, model = await device.ask([*question[:-1], True])
            assert (version, model[1]) == (1, 2), "the receipt of then, the model of now"
        async with joined(server.port, "jetson") as (other, _):
            assert await other.ask(question) == [RECEIPT, 3, 3, None], "numbers count for each device"
        assert server.engine.version == 3
        assert server.engine.last_sequence(1) == 8
        assert before != server.engine.theta()[1].tobytes()


async def test_a_complete_run_says_stop(tmp_path: Path) -> None:
    async with hosting(tmp_path, "run.updates=1") as server, joined(server.port, "pi") as (device, _):
        first = update(1, 0, (RAW, F32), SOME)
        assert (await device.ask(first))[0] == RECEIPT
        assert (await device.ask(update(2, 1, (RAW, F32), SOME)))[0] == STOP
        assert await device.ask(first) == [RECEIPT, 1, 1, None]
        assert (await device.ask([PULL, None]))[:2] == [MODEL, 1]


async def test_a_newer_session_supersedes_the_older(tmp_path: Path) -> None:
    async with hosting(tmp_path) as server, joined(server.port, "pi") as (older, _):
        # The Welcome waits for the older one's answer to its close frame.
        closed = asyncio.create_task(older.closed())
        async with joined(server.port, "pi") as (newer, _):
            assert await closed == (4409, "superseded")
            assert (await newer.ask([PULL, None]))[0] == MODEL


async def test_devices_are_told_that_the_server_stops(tmp_path: Path) -> None:
    async with hosting(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        device = Device(reader, writer)
        await device.upgrade()
        assert (await device.ask([HELLO, 1, "pi", b"", {}]))[0] == WELCOME
        closed = asyncio.create_task(device.closed())
    assert (await closed)[0] == 1001
    writer.close()
