"""A server with one good device, and proof that nothing about it changed."""

import logging
import sqlite3
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgpack
import pytest

from edgeflock.shared.errors import REFUSALS, SessionRefused
from tests.hosting import LAYOUT, Hosted, hosting
from tests.integration.foreign_client import (
    F32,
    GOLOMB,
    HELLO,
    RAW,
    RECEIPT,
    REFUSAL,
    UPDATE,
    Device,
    joined,
    pack,
)

P = LAYOUT.size
WHERE = [3, 41, 118]


def u32(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def f32(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def update(**fields: object) -> bytes:
    """A good update for version 3, but for `fields`."""
    good: dict[str, object] = {
        "sequence": 6,
        "base": 3,
        "count": 3,
        "indices": u32(*WHERE),
        "values": f32(1, -2, 3),
        "loss": -16,
        "samples": 10,
        "held": 0,
        "index_mode": RAW,
        "value_mode": F32,
        "facts": None,
        "pull": False,
        "task": None,
    }
    assert fields.keys() <= good.keys()
    return pack([UPDATE, *(good | fields).values()])


def golomb(indices: bytes, count: int = 3, values: bytes = f32(1, -2, 3)) -> bytes:
    return update(index_mode=GOLOMB, indices=indices, count=count, values=values)


def hello(
    protocol: object = 2,
    device: object = "stranger",
    layout: object = b"",
    facts: object = None,
    secret: object = None,
) -> bytes:
    again = [] if secret is None else [False, secret]
    return pack([HELLO, protocol, device, layout, {} if facts is None else facts, *again])


@dataclass(frozen=True, slots=True)
class Scene:
    """A server at version 3, with a device that has pushed numbers 1, 2 and 5, and a bystander."""

    server: Hosted
    device: Device
    bystander: Device
    directory: Path

    def state(self) -> object:
        """theta, version and the journal; without the traffic that devices cause, refused or not."""
        version, theta = self.server.engine.theta()
        journal = sqlite3.connect(self.directory / "journal.sqlite")
        try:
            tables = {
                table: journal.execute(f"SELECT {columns} FROM {table}").fetchall()
                for table, columns in {
                    "meta": "*",
                    "devices": "id, name",
                    "updates": "*",
                    "regimes": "*",
                    "snapshots": "*",
                    "evaluations": "*",
                }.items()
            }
        finally:
            journal.close()
        return version, theta.tobytes(), self.server.engine.receipts.last_sequence(1), tables


@asynccontextmanager
async def unchanged(
    directory: Path, caplog: pytest.LogCaptureFixture, *settings: str
) -> AsyncIterator[Scene]:
    """A Scene in which, at the end, nothing has changed, nothing has crashed, and a good update is taken."""
    limits = ["coordination.window=2", "limits.expansion_bytes=2000"]
    async with hosting(directory, *limits, *settings) as server:
        async with joined(server.port, "pi") as (device, _), joined(server.port, "jetson") as (bystander, _):
            for version, sequence in enumerate((1, 2, 5)):
                receipt = await device.ask(msgpack.unpackb(update(sequence=sequence, base=version)))
                assert receipt == [RECEIPT, sequence, version + 1]
            scene = Scene(server, device, bystander, directory)
            before = scene.state()
            yield scene
            assert scene.state() == before
            assert server.writer.error is None
            good = msgpack.unpackb(update(sequence=1, base=3))
            assert await bystander.ask(good) == [RECEIPT, 1, 4]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def refused(device: Device, code: str, sequence: int | None = None) -> None:
    """The Refusal comes, and the close frame that goes with its code."""
    kind, got, detail, answers = await device.answer()
    assert (kind, got, answers) == (REFUSAL, code, sequence), detail
    assert detail
    if issubclass(REFUSALS[code], SessionRefused):
        assert await device.closed() == (4000 + REFUSALS[code].status, code)
