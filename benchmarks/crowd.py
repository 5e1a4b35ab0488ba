"""Thousands of connected devices in one process: as little as the protocol asks of one, on bare asyncio.

    python -m benchmarks.crowd FIRST DEVICES PERIOD SECONDS PORT[,PORT] [--tls] [--idle]

Each connects, from one of several loopback addresses, and says Hello; then it pushes an update about every
PERIOD seconds, from the version of its last receipt. Prints JSON lines: {"connected": N} once all are, then
what they have counted every second.
"""

import argparse
import asyncio
import base64
import json
import os
import ssl
import sys
import time
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from benchmarks.updates import LAYOUT, record_update
from edgeflock.server.connections.handshake import shrink_buffers
from edgeflock.shared.protocol import chain, wire
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Receipt, Refusal, Update, Welcome

ADDRESSES = 40
"""127.0.0.2 and so on: a server takes limits.address_connections of each."""

AT_ONCE = 64
"""That connect at the same time."""


@dataclass(slots=True)
class Counts:
    """Of all devices of the process."""

    pushed: int = 0
    receipts: int = 0
    refused: int = 0
    lost: int = 0
    up: int = 0
    """Bytes to the server, and"""
    down: int = 0
    """from it, without TLS."""
    entries: int = 0
    """Of models in answers."""
    waits: list[float] = field(default_factory=list)
    """Seconds until a receipt, since they were told last."""


class Device(asyncio.Protocol):
    """One WebSocket, client's end."""

    __slots__ = ("buffer", "chain", "counts", "joined", "name", "sent", "sequence", "transport", "version")

    def __init__(self, name: str, counts: Counts, joined: asyncio.Future[None]) -> None:
        self.name, self.counts, self.joined = name, counts, joined
        self.buffer = b""
        self.sequence = self.version = self.chain = 0
        self.sent = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        key = base64.b64encode(os.urandom(16))
        transport.write(
            b"GET /v1/session HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
        )

    def connection_lost(self, error: Exception | None) -> None:
        self.counts.lost += 1
        if not self.joined.done():
            self.joined.set_exception(ConnectionError(f"{self.name}: {error or 'hung up on'}"))

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.counts.down += len(data)
        if self.version == 0 and self.buffer.startswith(b"HTTP/1.1"):
            head, end, rest = self.buffer.partition(b"\r\n\r\n")
            if not end:
                return
            if b" 101 " not in head[:20]:
                self.joined.set_exception(ConnectionError(self.buffer.decode()))
                return
            self.buffer = rest
            self.send(wire.encode(Hello(PROTOCOL, self.name, LAYOUT.digest, {})))
        while (payload := self._message()) is not None:
            self._take(payload)

    def send(self, payload: bytes, opcode: int = 2) -> None:
        """A masked frame, whose mask is zero: the payload is sent as it is."""
        assert self.transport is not None, "connected"
        size = len(payload)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        frame = b"".join((bytes([0x80 | opcode]), length, b"\0\0\0\0", payload))
        self.counts.up += len(frame)
        self.transport.write(frame)

    def push(self, update: Update) -> None:
        self.sequence += 1
        self.sent = time.perf_counter()
        self.counts.pushed += 1
        held = chain.low_bits(self.chain)
        self.send(wire.encode(replace(update, sequence=self.sequence, base=self.version, held=held)))

    def _message(self) -> bytes | None:
        """The next one, taken from the buffer; pings are answered."""
        buffer = self.buffer
        if len(buffer) < 2:
            return None
        opcode, size, begin = buffer[0] & 15, buffer[1], 2
        if size > 125:
            begin = 4 if size == 126 else 10
            size = int.from_bytes(buffer[2:begin], "big")
        if len(buffer) < begin + size:
            return None
        payload, self.buffer = buffer[begin : begin + size], buffer[begin + size :]
        if opcode == 9:
            self.send(payload, 10)
            return self._message()
        return payload

    def _take(self, payload: bytes) -> None:
        if len(payload) < 3:  # it hangs up
            return
        record = wire.decode(payload)
        if isinstance(record, Welcome):
            self.version, self.sequence = record.version, record.sequence
            self.joined.set_result(None)
        elif isinstance(record, Receipt):
            self.version, model = record.version, record.model
            if model is not None:
                self.version, self.chain = model.version, chain.follow(self.chain, model)
                self.counts.entries += model.count
            self.counts.receipts += 1
            self.counts.waits.append(time.perf_counter() - self.sent)
            self.sent = 0.0
        elif isinstance(record, Refusal):
            if not self.counts.refused:
                print(f"{self.name} was refused: {record.code}: {record.detail}", file=sys.stderr)
            self.counts.refused += 1
            self.sent = 0.0


async def main(asked: argparse.Namespace) -> None:
    loop, counts, random = asyncio.get_running_loop(), Counts(), Random(asked.first)
    tls = None
    if asked.tls:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        shrink_buffers()  # of this end
    ports = [int(port) for port in asked.ports.split(",")]
    gate = asyncio.Semaphore(AT_ONCE)

    async def connect(number: int) -> Device:
        async with gate:
            joined: asyncio.Future[None] = loop.create_future()
            source = f"127.0.0.{2 + number % ADDRESSES}"
            _, device = await loop.create_connection(
                lambda: Device(f"device-{number}", counts, joined),
                *("127.0.0.1", ports[number % len(ports)]),
                ssl=tls,
                local_addr=(source, 0),
            )
            await joined
            return device

    numbers = range(asked.first, asked.first + asked.devices)
    devices = await asyncio.gather(*(connect(number) for number in numbers))
    print(json.dumps({"connected": len(devices)}), flush=True)
    update = replace(record_update(LAYOUT, np.random.default_rng(0)), pull=asked.pull)

    async def train(device: Device) -> None:
        await asyncio.sleep(random.uniform(0, asked.period))
        while True:
            if not device.sent and device.transport is not None and not device.transport.is_closing():
                device.push(update)
            await asyncio.sleep(asked.period * random.uniform(0.5, 1.5))

    training = [] if asked.idle else [asyncio.create_task(train(device)) for device in devices]
    ends = time.monotonic() + asked.seconds
    while time.monotonic() < ends:
        await asyncio.sleep(1)
        waits, counts.waits = sorted(counts.waits), []
        reported = {"pushed": counts.pushed, "receipts": counts.receipts, "refused": counts.refused}
        reported |= {"up": counts.up, "down": counts.down, "entries": counts.entries}
        tail = {"p50": waits[len(waits) // 2], "p99": waits[len(waits) * 99 // 100]} if waits else {}
        print(json.dumps({**reported, "lost": counts.lost, **tail}), flush=True)
    for task in training:
        task.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, kind in (
        ("first", int),
        ("devices", int),
        ("period", float),
        ("seconds", float),
        ("ports", str),
    ):
        parser.add_argument(name, type=kind)
    for name in ("tls", "idle", "pull"):
        parser.add_argument(f"--{name}", action="store_true")
    sys.exit(asyncio.run(main(parser.parse_args())))
