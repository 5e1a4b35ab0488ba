"""A client written from docs/protocol.md alone.

It uses nothing of Edgeflock and no library but msgpack, and cryptography for Ed25519: plain sockets, lists
and loops, so that it shares no mistake with the code under test.
"""

import asyncio
import base64
import hashlib
import json
import math
import os
import re
import struct
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgpack
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

BINARY, TEXT, CLOSE, PING, PONG = 2, 1, 8, 9, 10
HELLO, WELCOME, PULL, MODEL, UPDATE, RECEIPT, REFUSAL, STOP, SAMPLES, TASK, OVER, TELEMETRY, GOODBYE = range(
    1, 14
)
CREDENTIAL, CHALLENGE = 14, 15
SECURE_SUM = 16
DENSE, RAW, GOLOMB, GRID = range(4)
F32, F16, INT8, CODEBOOK4, SIGN, SCALE = range(6)

IN_FIRST_RECORD = "Sec-WebSocket-Protocol: edgeflock-credential"
"""The header of a device that shows its credential in its first record."""


class Device:
    """One WebSocket of a device, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.host = "server.example"
        self.challenge = b""
        """Of the session, for the device's key."""

    async def upgrade(self, token: str | None = None, *more: str) -> tuple[int, bytes]:
        """(HTTP status, body) of the answer to a request with `more` headers; no body if it is 101."""
        key = base64.b64encode(os.urandom(16))
        lines = [b"GET /v1/session HTTP/1.1", b"Host: " + self.host.encode(), b"Upgrade: websocket"]
        lines += [b"Connection: Upgrade", b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: " + key]
        if token is not None:
            lines.append(b"Authorization: Bearer " + token.encode("latin-1"))
        lines += [line.encode() for line in more]
        self.writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        if status == 101:
            proof = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
            assert base64.b64encode(proof) in head
            if IN_FIRST_RECORD in more:
                assert f"\r\n{IN_FIRST_RECORD}\r\n".encode() in head
            asked = re.search(rb"(?i)edgeflock-challenge: (\S+)", head)
            self.challenge = unlettered(asked[1].decode()) if asked else b""
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
async def joined(
    port: int, name: str, digest: bytes = b"", secret: bytes = b""
) -> AsyncIterator[tuple[Device, list[Any]]]:
    """(device, Welcome) of a session. `secret` is that of an earlier Welcome."""
    async with connected(port) as device:
        assert (await device.upgrade())[0] == 101
        again = [False, secret] if secret else []
        welcome = await device.ask([HELLO, 2, name, digest, {"cores": 4}, *again])
        assert welcome[0] == WELCOME, welcome
        yield device, welcome


def input_of(welcome: list[Any]) -> list[int] | None:
    """The shape of one sample's x; None if the server does not say. It is left out then."""
    return welcome[29] if len(welcome) > 29 else None


# Joining


def lettered(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")


def unlettered(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def public_key(key: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def signature(key: bytes, words: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(key).sign(words)


def words_of_joining(secret: str, key: bytes, name: str, pin: bytes = bytes(32)) -> bytes:
    """`secret` is the token, or the credential of a device that gets another key."""
    return (
        b"edgeflock join 1\n"
        + hashlib.sha256(secret.encode()).digest()
        + pin
        + public_key(key)
        + name.encode()
    )


def words_of_session(challenge: bytes, realm: bytes, name: str, pin: bytes = bytes(32)) -> bytes:
    return b"edgeflock session 1\n" + challenge + realm + pin + name.encode()


async def join(port: int, secret: str, name: str, key: bytes, before: bytes = b"") -> tuple[str, bytes]:
    """(credential, realm) that the server gives. `before` is the key that it knows by now, if any."""
    words = words_of_joining(secret, key, name)
    body = {"name": name, "key": lettered(public_key(key)), "proof": lettered(signature(key, words))}
    if before:
        body["before"] = lettered(signature(before, words))
    octets = json.dumps(body).encode()
    async with connected(port) as device:
        lines = ["POST /v1/join HTTP/1.1", "Host: server.example", f"Authorization: Bearer {secret}"]
        lines += ["Content-Type: application/json", f"Content-Length: {len(octets)}", "Connection: close"]
        device.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + octets)
        head, _, answer = (await device.reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), answer
    reported = json.loads(answer)
    return reported["credential"], unlettered(reported["realm"])


@asynccontextmanager
async def proved(
    port: int, name: str, key: bytes, credential: str, realm: bytes
) -> AsyncIterator[tuple[Device, list[Any]]]:
    """(device, what the server answers its Hello) of a session that proves its key."""
    async with connected(port) as device:
        assert (await device.upgrade(credential))[0] == 101
        proof = signature(key, words_of_session(device.challenge, realm, name))
        yield device, await device.ask([HELLO, 2, name, b"", {}, False, b"", "", proof])


@asynccontextmanager
async def shown(port: int, credential: str) -> AsyncIterator[tuple[Device, list[Any]]]:
    """(device, what the server answers) of a session that shows its credential in its first record."""
    async with connected(port) as device:
        assert (await device.upgrade(None, IN_FIRST_RECORD))[0] == 101
        yield device, await device.ask([CREDENTIAL, credential])


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


Activity = list[tuple[list[int], list[int]]]
"""Of each tensor's rows, and of its columns."""


def matrices(layout: list[Any]) -> list[tuple[int, int]]:
    """Rows and columns of each tensor."""
    shapes = [shape if len(shape) > 1 else [1, *shape] for _, shape, *_ in trained(layout)]
    return [(shape[0], math.prod(shape[1:])) for shape in shapes]


def inactive(layout: list[Any]) -> Activity:
    return [([0] * rows, [0] * columns) for rows, columns in matrices(layout)]


def active(activity: Activity, layout: list[Any], where: Sequence[int]) -> Activity:
    """After a step with entries there."""
    entries, start = inactive(layout), 0
    for t, (rows, columns) in enumerate(matrices(layout)):
        for k in where:
            if start <= k < start + rows * columns:
                entries[t][0][(k - start) // columns] += 1
                entries[t][1][(k - start) % columns] += 1
        start += rows * columns

    def after(before: list[int], new: list[int]) -> list[int]:
        return [a - a // 8 + 16 * min(n, 255) for a, n in zip(before, new, strict=True)]

    return [(after(a, c), after(b, d)) for (a, b), (c, d) in zip(activity, entries, strict=True)]


class Grid:
    """A grid stream being written, or read if `octets` are given."""

    def __init__(
        self, layout: list[Any], octets: bytes | None = None, activity: Activity | None = None
    ) -> None:
        self.matrices = matrices(layout)
        self.activity = activity or inactive(layout)
        self.reading = octets is not None
        self.octets = octets or b""
        self.low, self.high = 0, 0xFFFFFFFF
        self.out = b""
        """What has left low and high: what was written, or read."""
        self.decisions: list[tuple[int, int]] = []

    def decide(self, chance: int, truth: bool | int) -> int:
        c = min(max(chance, 16), 65520)
        middle = self.low + (self.high - self.low) * c // 65536
        if self.reading:
            at = len(self.out)
            code = int.from_bytes(self.octets[at : at + 4].ljust(4, b"\0"), "big")
            truth = code <= middle
        if truth:
            self.high = middle
        else:
            self.low = middle + 1
        while self.low.to_bytes(4, "big")[0] == self.high.to_bytes(4, "big")[0]:
            self.out += self.low.to_bytes(4, "big")[:1]
            self.low = self.low * 256 % 2**32
            self.high = self.high * 256 % 2**32 + 255
        self.decisions.append((chance, int(truth)))
        return int(truth)

    def number(self, x: int, limit: int) -> int:
        reported = f"{x + 1:b}"
        n = 1
        while n < len(f"{limit + 1:b}") and self.decide(32768, n < len(reported)):
            n += 1
        bits = "1"
        for i in range(1, n):
            bits += str(self.decide(32768, reported[i : i + 1] == "1"))
        return int(bits, 2) - 1

    def flags(self, truth: Sequence[int], length: int, ones: int) -> list[int]:
        """`truth` is not looked at when reading."""
        hits, seen, context = [0] * 4, [0] * 4, 0
        flags: list[int] = []
        for left in range(length, 0, -1):
            if ones == 0:
                flag = 0
            elif ones == left:
                flag = 1
            else:
                chance = (65536 * hits[context] + 4 * (65536 * ones // left)) // (seen[context] + 4)
                flag = self.decide(chance, 0 if self.reading else truth[len(flags)])
            flags.append(flag)
            hits[context] += flag
            seen[context] += 1
            ones -= flag
            context = 2 * (context % 2) + flag
        return flags

    def lines(
        self, truth: Sequence[int], length: int, ones: int, activity: list[int], slots: bool
    ) -> list[int]:
        """Flags of lines that have been active; `slots` are those of rows."""
        known = sum(activity)
        if not known:
            return self.flags(truth, length, ones)
        hits, seen = [0] * 16, [0] * 16
        flags: list[int] = []
        i, again, left = 0, 0, known + len(activity)
        while len(flags) < length:
            n = len(f"{4 * activity[i] * len(activity) // known:b}".lstrip("0"))
            context, weight = 2 * min(n, 7) + again, activity[i] + 1
            flag = int(ones > 0)
            if 0 < ones < length - len(flags):
                share = ones * weight
                p = 65536 * share // (share + left) if slots else min(65536 * share // left, 63570)
                chance = (65536 * hits[context] + 16 * p) // (seen[context] + 16)
                flag = self.decide(chance, 0 if self.reading else truth[len(flags)])
                hits[context] += flag
                seen[context] += 1
            flags.append(flag)
            ones -= flag
            again = int(slots and flag)
            if not again:
                left -= weight
                i += 1
        return flags

    def update(self, count: int, entries: Mapping[int, bool]) -> dict[int, bool]:
        """index -> whether it is a minus; `entries` is not looked at when reading."""
        found: dict[int, bool] = {}
        start = 0
        weights = [math.isqrt(rows * columns) for rows, columns in self.matrices]
        for t, (rows, columns) in enumerate(self.matrices):
            mine = {divmod(k - start, columns): minus for k, minus in entries.items()
                    if start <= k < start + rows * columns}  # fmt: skip
            rest, left = sum(weights[t:]), count - len(found)
            k = left
            if weights[t] < rest:
                share = min((2 * left * weights[t] + rest) // (2 * rest), rows * columns)
                d = len(mine) - share
                x = self.number(2 * d - 1 if d > 0 else -2 * d, 2 * rows * columns)
                k = share + ((x + 1) // 2 if x % 2 else -(x // 2))
            if k:
                there = self.matrix(rows, columns, k, mine, *self.activity[t])
                found |= {start + row * columns + column: minus for (row, column), minus in there.items()}
            start += rows * columns
        assert len(found) == count
        return dict(sorted(found.items()))

    def matrix(
        self,
        rows: int,
        columns: int,
        k: int,
        mine: Mapping[tuple[int, int], bool],
        of_rows: list[int],
        of_columns: list[int],
    ) -> dict[tuple[int, int], bool]:
        reported: list[int] = []
        for row in range(rows):
            reported += [1] * sum(row == r for r, _ in mine) + [0]
        in_row, row = [0] * rows, 0
        for slot in self.lines(reported[:-1], rows + k - 1, k, of_rows, True):
            in_row[row] += slot
            row += 1 - slot
        widest = max(in_row)
        used = {column for _, column in mine}
        width = widest + self.number(len(used) - widest, min(columns, k) - widest)
        assert sum(n > 0 for n in in_row) * width <= 64 * k + 1024
        listed = [column in used for column in range(columns)]
        flags = self.lines(listed, columns, width, of_columns, False)
        number = [0] + [column for column in range(columns) if flags[column]]

        found: dict[tuple[int, int], bool] = {}
        hits, seen, sums, above = [0] * 128, [0] * 128, [0] * (width + 1), [0] * (width + 1)
        alike, pairs = 10, 11
        order = sorted((row for row in range(rows) if in_row[row]), key=lambda row: (-in_row[row], row))
        for done, row in enumerate(order):
            x, ones, before = [0] * (width + 1), in_row[row], None
            for j in range(1, width + 1):
                if not ones:
                    break
                left = width + 1 - j
                x[j] = 1
                if ones < left:
                    a = 8 * (8 * sums[j] // (done + 1)) + 8 * ones // left
                    b = 64 + 8 * min(sums[j], 7) + 4 * x[j - 1] + 2 * above[j - 1] + above[j]
                    p = 65536 * ones // left
                    parts = [(65536 * hits[c] + p) // (seen[c] + 1) for c in (a, b)]
                    x[j] = self.decide(sum(parts) // 2, (row, number[j]) in mine)
                    for c in (a, b):
                        hits[c] += x[j]
                        seen[c] += 1
                if x[j]:
                    ones -= 1
                    chance = 32768
                    if before is not None:
                        chance = (alike if before else pairs - alike) * 65536 // pairs
                    minus = self.decide(chance, mine.get((row, number[j]), False))
                    if before is not None:
                        alike, pairs = alike + (minus == before), pairs + 1
                    before = minus
                    found[row, number[j]] = bool(minus)
            sums = [sums[j] + x[j] for j in range(width + 1)]
            above = x
        assert all(sums[1:])
        return found

    def end(self) -> bytes:
        return self.out + (bytes([(self.low >> 24) + 1]) if self.low else b"")


def grid_encode(layout: list[Any], entries: Mapping[int, bool], activity: Activity | None = None) -> bytes:
    if not entries:
        return b""
    grid = Grid(layout, None, activity)
    grid.update(len(entries), entries)
    return grid.end()


def grid_decode(
    layout: list[Any], octets: bytes, count: int, activity: Activity | None = None
) -> dict[int, bool]:
    """index -> whether its value is a minus."""
    if not count:
        assert octets == b""
        return {}
    grid = Grid(layout, octets, activity)
    entries = grid.update(count, {})
    assert grid.end() == octets
    assert count / 8 <= len(octets) <= 8 * count + 64
    return entries


def f32(number: float) -> float:
    """Rounded to float32. Sums and products of two float32 survive the detour through double."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def bfloat16(number: float) -> bytes:
    (word,) = struct.unpack("<I", struct.pack("<f", number))
    return struct.pack("<H", (word + 0x7FFF + (word >> 16 & 1)) >> 16)


def from_bfloat16(octets: bytes) -> list[float]:
    return [struct.unpack("<f", b"\0\0" + octets[i : i + 2])[0] for i in range(0, len(octets), 2)]


def trained(layout: list[Any]) -> list[Any]:
    """Without the running statistics."""
    return [tensor for tensor in layout if len(tensor) == 2]


def shares(layout: list[Any], indices: Sequence[int]) -> list[int]:
    """How many of the indices each tensor has, for those that have any."""
    counts, start = [], 0
    for _, shape, *_ in layout:
        stop = start + math.prod(shape)
        counts.append(sum(start <= k < stop for k in indices))
        start = stop
    return [count for count in counts if count]


def crc(octets: bytes, before: int) -> int:
    """CRC-32 of what `before` is the CRC-32 of, and `octets` behind it."""
    register = before ^ 0xFFFFFFFF
    for octet in octets:
        register ^= octet
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def values_size(mode: int, counts: Sequence[int]) -> int:
    """Bytes of a value stream."""
    n, t = sum(counts), len(counts)
    return {
        F32: 4 * n,
        F16: 2 * n,
        INT8: 2 * t + n,
        CODEBOOK4: 2 * t + 16 + (n + 1) // 2,
        SIGN: 2 * t + (n + 7) // 8,
        SCALE: t,
    }[mode]


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
        if mode == SCALE:
            scales += bytes([min(255, round(8 * math.log2(max(mean, 2**-24))) + 192)])
            at += count
            continue
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
    if mode == SCALE:
        steps = [f32(2 ** ((e - 192) / 8)) if e else 0.0 for e in octets]
        return [s for s, count in zip(steps, counts, strict=True) for _ in range(count)]
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


def random_words(seed: int, tensor: int, count: int) -> list[int]:
    """The first 64-bit words of a tensor."""
    words: list[int] = []
    low = (1 << 64) - 1
    for block in range(1, (count + 3) // 4 + 1):
        c0, c1, c2, c3 = block, 0, 0, 0
        k0, k1 = seed, tensor
        for _ in range(10):
            p, q = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
            c0, c1, c2, c3 = q >> 64 ^ c1 ^ k0, q & low, p >> 64 ^ c3 ^ k1, p & low
            k0, k1 = k0 + 0x9E3779B97F4A7C15 & low, k1 + 0xBB67AE8584CAA73B & low
        words += [c0, c1, c2, c3]
    return words[:count]


def first_model(layout: list[Any], start: list[Any]) -> list[float]:
    """theta at version 0, as the Welcome's layout and start say."""
    theta: list[float] = []
    seed, fillings = start
    assert len(fillings) == len(layout)
    for t, ((_, shape, *_), (kind, a, b)) in enumerate(zip(layout, fillings, strict=True)):
        n = math.prod(shape)
        if kind == 0:
            theta += [a] * n
        elif kind == 1:
            width = f32(b - a)
            theta += [f32(a + f32(width * (w >> 40) / 2**24)) for w in random_words(seed, t, n)]
        else:
            words = random_words(seed, t, 3 * n)
            for i in range(n):
                parts = [w >> shift & 65535 for w in words[3 * i : 3 * i + 3] for shift in (0, 16, 32, 48)]
                theta.append(f32(a + f32(b * (sum(parts) - 393210) / 65536)))
    return theta


async def load(port: int, device: str, have: int = 0, digest: str = "") -> tuple[int, str, bytes]:
    """(HTTP status, ETag, body) of what is missing of the first model's file."""
    lines = [f"GET /v1/start?device={device} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close"]
    if have:
        lines += [f"Range: bytes={have}-", f'If-Range: "{digest}"']
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    writer.close()
    etag = re.search(rb'(?i)etag: "(\w+)"', head)
    return int(head.split()[1]), etag[1].decode() if etag else "", body


def unpacked(file: bytes, mode: int) -> bytes:
    """The value stream in a first model's file."""
    planes, width = zlib.decompress(file), {F32: 4, F16: 2, INT8: 1}[mode]
    n = len(planes) // width
    return bytes(planes[byte * n + number] for number in range(n) for byte in range(width))


class Copy:
    """The device's copy of the model, and what it expects of the server's."""

    def __init__(self, layout: list[Any]) -> None:
        self.layout = layout
        self.size = sum(math.prod(shape) for _, shape, *_ in layout)
        self.parameters = sum(math.prod(shape) for _, shape in trained(layout))
        self.version = -1
        self.theta: list[float] = []
        self.chain = 0
        self.activity = inactive(layout)
        self.touched: dict[int, set[int]] = {}
        """Version -> the parameters that the update which made it changed."""

    @property
    def held(self) -> int:
        return self.chain % 65536 or min(self.chain, 1)

    def take(self, model: list[Any]) -> None:
        _, version, behind, count, indices, octets, changes, index_mode, value_mode = completed(model)
        assert behind is None or version - behind == self.version
        if changes and behind is not None:
            self._add(index_mode, value_mode, count, indices, octets)
        else:
            where = decode_indices(index_mode, indices, count, self.size)
            numbers = decode_values(value_mode, octets, shares(self.layout, where))
            if behind is None:
                assert len(numbers) == self.size
                self.theta = numbers
            for k, number in zip(where, numbers, strict=True):
                self.theta[k] = number
            self.chain = crc(octets, 0) if changes else 0
            self.activity = inactive(self.layout)
        self.version = version

    def _add(self, index_mode: int, value_mode: int, count: int, indices: bytes, octets: bytes) -> None:
        """A lossy difference, and the running statistics that may stand behind it."""
        parameters, statistics = trained(self.layout), 2 * (self.size - self.parameters)
        signs: dict[int, bool] = {}
        if index_mode == GRID:
            signs = grid_decode(self.layout, indices, count, self.activity)
            where = list(signs)
        else:
            where = decode_indices(index_mode, indices, count, self.parameters)
        counts = shares(parameters, where)
        stream = octets
        if statistics and len(octets) != values_size(value_mode, counts):
            stream = octets[: len(octets) - statistics]
            self.theta[self.parameters :] = struct.unpack(
                f"<{statistics // 2}e", octets[len(octets) - statistics :]
            )
        assert len(stream) == values_size(value_mode, counts)
        for k, number in zip(where, decode_values(value_mode, stream, counts), strict=True):
            self.theta[k] = f32(self.theta[k] + (-number if signs.get(k) else number))
        if count:
            self.chain = crc(octets, crc(indices, self.chain))
            if index_mode != DENSE:
                self.activity = active(self.activity, self.layout, where)

    def descend(self, update: list[Any], learning_rate: float, rule: str = "adacomp") -> None:
        """theta[k] - rate[k] * value, and a part of the way to the statistics."""
        _, _, base, count, indices, octets = update[:6]
        index_mode, value_mode = update[9:11]
        statistics = struct.unpack(
            f"<{self.size - self.parameters}e", octets[len(octets) - 2 * (self.size - self.parameters) :]
        )
        octets = octets[: len(octets) - 2 * len(statistics)]
        if index_mode == GRID:
            entries = grid_decode(self.layout, indices, count)
            where = list(entries)
            magnitudes = decode_values(value_mode, octets, shares(self.layout, where))
            numbers = [-m if entries[k] else m for k, m in zip(where, magnitudes, strict=True)]
        else:
            where = decode_indices(index_mode, indices, count, self.parameters)
            numbers = decode_values(value_mode, octets, shares(self.layout, where))
        for k, s in enumerate(statistics, self.parameters):
            part = f32(f32(s - self.theta[k]) / max(10, self.version - base))
            self.theta[k] = f32(self.theta[k] + part)
        for k, number in zip(where, numbers, strict=True):
            since = range(base + 1, self.version + 1)
            sigma = sum(k in self.touched[version] for version in since)
            stale = {"adacomp": sigma, "tau": len(since), "none": 1}[rule]
            rate = f32(f32(learning_rate) / max(1, stale))
            self.theta[k] = f32(self.theta[k] - f32(rate * number))
        self.version += 1
        self.touched[self.version] = {k for k, number in zip(where, numbers, strict=True) if number}


def completed(model: list[Any]) -> list[Any]:
    """A Model with the last fields that it left out."""
    return [*model, *(0, b"", b"", True, GRID, SCALE)[len(model) - 3 :]]


def model_of(receipt: list[Any]) -> list[Any]:
    """The Model that a Receipt brings: its version counts from the Receipt's."""
    _, _, version, (ahead, *rest) = receipt
    return completed([MODEL, version + ahead, *rest])


def decode_indices(mode: int, octets: bytes, count: int, size: int) -> list[int]:
    if mode == DENSE:
        assert (count, octets) == (size, b"")
        return list(range(size))
    return list(struct.unpack(f"<{count}I", octets)) if mode == RAW else golomb_decode(octets, count)


def held_out_hash(run: str, x: Sequence[float], y: float, classes: bool) -> bytes:
    """Of a row of numbers x, as the model gets them, and a class or a number y."""

    def upper(number: float) -> bytes:
        (bits,) = struct.unpack("<I", struct.pack("<f", number + 0.0))
        return struct.pack("<I", (bits + 2048) >> 12)

    octets = b"".join(upper(number) for number in x)
    octets += struct.pack("<q", int(y)) if classes else upper(y)
    return hashlib.blake2b(octets, digest_size=8, key=run.encode()[:64]).digest()


def inputs_of(data: list[Any], row: Mapping[str, Any]) -> list[float]:
    """What the model gets of a row, by the Welcome's `data`."""
    columns, means, spreads, *_ = data
    categories = data[6] if len(data) > 6 else [[]] * len(columns)
    numbers: list[float] = []
    for place, (column, names) in enumerate(zip(columns, categories, strict=True)):
        if names:
            numbers += [float(row[column] == name) for name in names]
        else:
            numbers.append((row[column] - means[place]) / spreads[place])
    return numbers


def target_of(data: list[Any], number: float) -> float:
    """What the model learns of a number to predict."""
    mean, spread = data[5] if len(data) > 5 and data[5] else (0.0, 1.0)
    return float((number - mean) / spread)
