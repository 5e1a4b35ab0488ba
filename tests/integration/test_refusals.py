"""Malformed input of every kind against a live server: one clear code, nothing changed, and it serves on.

Each row of the tables is one test with a server of its own.
"""

import logging
import struct
from pathlib import Path
from typing import Any

import msgpack
import pytest

from edgeflock.shared.errors import REFUSALS, SessionRefused
from tests.hosting import LAYOUT, hosting
from tests.integration.foreign_client import (
    BINARY,
    CODEBOOK4,
    DENSE,
    F16,
    GRID,
    INT8,
    MODEL,
    PULL,
    RECEIPT,
    REFUSAL,
    SCALE,
    SIGN,
    STOP,
    TEXT,
    WELCOME,
    connected,
    golomb_encode,
    grid_encode,
    joined,
    pack,
)
from tests.integration.scene import WHERE, P, f32, golomb, hello, refused, u32, unchanged, update
from tests.integration.test_reconnect import link

NAN, INFINITY = float("nan"), float("inf")

STREAM = golomb_encode(WHERE, 6)
GRID_STREAM = grid_encode(LAYOUT.shapes(), dict.fromkeys(WHERE, True))
ONE_PREFIX_PLANE = b"\x06\xff"
NESTED = b"\x91" * 1000 + b"\x90"


def on_grid(indices: bytes, count: int = 3, values: bytes = b"\xc0" * 3) -> bytes:
    return update(index_mode=GRID, value_mode=SCALE, count=count, indices=indices, values=values)


# Each code is one kind of fault; the rows below it are ways to commit it.

UPDATES: dict[str, dict[str, bytes]] = {
    "wrong-dtype": {
        "unknown value mode": update(value_mode=6),
        "unknown index mode": update(index_mode=9),
        "a grid with values that have signs": update(index_mode=GRID, indices=GRID_STREAM),
        "a grid with sign bits": update(
            index_mode=GRID, value_mode=SIGN, indices=GRID_STREAM, values=b"\0\x3f" * 3 + b"\0"
        ),
        "scales with indices that have no signs": update(value_mode=SCALE, values=b"\xc0" * 3),
        "scales for a dense update": update(
            index_mode=DENSE, value_mode=SCALE, count=P, indices=b"", values=b"\xc0" * 5
        ),
        "a scale too few": on_grid(GRID_STREAM, values=b"\xc0" * 2),
        "a scale for an empty tensor": on_grid(GRID_STREAM, values=b"\xc0" * 4),
        "float64": update(values=struct.pack("<3d", 1, -2, 3)),
        "a value too few": update(values=f32(1, -2)),
        "no values": update(values=b""),
        "int8 without scales": update(value_mode=INT8, values=b"\1\2\3"),
        "codebook4 without levels": update(value_mode=CODEBOOK4, values=b"\0\x3f" * 3 + b"\0\0"),
        "sign with a scale for an empty tensor": update(value_mode=SIGN, values=b"\0\x3f" * 4 + b"\0"),
        "sign with a byte too many": update(value_mode=SIGN, values=b"\0\x3f" * 3 + b"\0\0"),
        "raw indices of u64": update(indices=struct.pack("<3Q", *WHERE)),
        "more raw indices than announced": update(indices=u32(3, 41, 117, 118)),
        "fewer raw indices than announced": update(indices=u32(3, 41)),
    },
    "non-finite": {
        "NaN": update(values=f32(1, NAN, 3)),
        "infinity": update(values=f32(1, 2, INFINITY)),
        "minus infinity": update(values=f32(-INFINITY, 2, 3)),
        "float16 infinity": update(value_mode=F16, values=struct.pack("<3e", 1, INFINITY, 3)),
        "scale NaN": update(value_mode=SIGN, values=b"\0\x3f\xc0\x7f\0\x3f\0"),
        "scale infinite": update(value_mode=INT8, values=b"\0\x3f\x80\x7f\0\x3f\1\1\1"),
        "scale infinite, value 0": update(value_mode=INT8, values=b"\0\x3f\x80\x7f\0\x3f\0\0\0"),
        "scale times level overflows": update(
            value_mode=CODEBOOK4, values=b"\x7f\x7f" * 3 + b"\x7f\x7f" * 8 + b"\0\0"
        ),
    },
    "index-malformed": {
        "no stream": golomb(b""),
        "parameter 0": golomb(b"\0" + STREAM[1:]),
        "parameter above 2^31": golomb(b"\x81\x80\x80\x80\x08" + STREAM[1:]),
        "parameter without end": golomb(b"\x86" * 6),
        "prefix plane cut short": golomb(STREAM[:1]),
        "extra plane cut short": golomb(ONE_PREFIX_PLANE),
        "unary plane cut short": golomb(STREAM[:-1]),
        "a byte too many": golomb(STREAM + b"\0"),
        "an index too many": golomb(STREAM + b"\x80"),
        "fewer indices than announced": golomb(STREAM, 4, f32(1, 2, 3, 4)),
        "more indices than announced": golomb(golomb_encode([3, 41, 117, 118], 6)),
        "more announced than bits": golomb(STREAM, P, f32(*[1] * P)),
        "no grid stream": on_grid(b""),
        "a byte after a grid stream": on_grid(GRID_STREAM + b"\0"),
        "a grid stream that ends otherwise": on_grid(GRID_STREAM[:-1] + b"\xff"),
        "a grid stream of ones": on_grid(b"\xff" * 3),
        "a grid stream for fewer entries": on_grid(GRID_STREAM, 2),
        "a grid of fewer bits than entries": on_grid(b"\1", 9),
        "dense, but not all": update(index_mode=DENSE, indices=b""),
        "dense, with indices": update(index_mode=DENSE, count=P, values=f32(*[1] * P)),
    },
    "index-out-of-range": {
        "raw": update(indices=u32(3, 41, P)),
        "raw, the largest": update(indices=u32(3, 41, 2**32 - 1)),
        "golomb": golomb(golomb_encode([3, 41, P], 6)),
        "golomb, beyond 2^60": golomb(golomb_encode([7, 2**31 * 300, 2**31 * 500], 2**31)),
        "more entries than parameters": update(
            count=P + 1, indices=u32(*range(P + 1)), values=f32(*[1] * (P + 1))
        ),
    },
    "index-repeated": {
        "raw": update(indices=u32(3, 41, 41)),
        "raw, all the same": update(indices=u32(0, 0, 0)),
    },
    "index-unsorted": {"raw": update(indices=u32(3, 118, 41))},
    "base-in-future": {"by one": update(base=4), "by far": update(base=2**63 - 1)},
    "base-expired": {"by one": update(base=1), "the first": update(base=0)},
    "expansion-too-large": {
        "raw": update(count=200, indices=u32(*range(200)), values=f32(*[1] * 200)),
        "announced only": golomb(STREAM, 2**63 - 1),
    },
    "bad-samples": {
        "none": update(samples=0),
        "one too many": update(samples=65537),
        "as many as there can be": update(samples=2**63 - 1),
    },
    "sequence-ahead": {
        "one too far": update(sequence=5 + 65536 + 1),
        "as far as there is": update(sequence=2**63 - 1),
    },
    "bad-sequence": {"skipped before": update(sequence=3), "zero": update(sequence=0)},
}

SESSIONS: dict[str, dict[str, bytes]] = {
    "unknown-record": {"tag 17": pack([17, 1]), "tag 0": pack([0]), "negative tag": pack([-1])},
    "unexpected-record": {
        "a second Hello": hello(),
        "a Welcome": pack(
            [WELCOME, 2, "r", "m", "l", [], None, 1, 1, 1, 1, 0.1, 0.5, 1.0, 0.0, 0.0, 2, 3, 1, 0.0, 0.0]
        ),
        "a Model": pack([MODEL, 1, None]),
        "a Receipt": pack([RECEIPT, 1, 1]),
        "a Refusal": pack([REFUSAL, "malformed", "", None]),
        "a Stop": pack([STOP, ""]),
    },
    "malformed": {
        "nothing": b"",
        "cut short": update()[:-1],
        "cut short by much": update()[:10],
        "trailing byte": update() + b"\0",
        "two records": update() + update(),
        "no array": pack({}),  # type: ignore[arg-type]
        "an empty array": pack([]),
        "a text as tag": pack(["Update"]),
        "true as tag": pack([True]),
        "a field too few": pack(msgpack.unpackb(update())[:7]),
        "a field too many": pack([*msgpack.unpackb(update()), 0]),
        "sequence text": update(sequence="6"),
        "sequence true": update(sequence=True),
        "sequence float": update(sequence=6.0),
        "sequence nil": update(sequence=None),
        "sequence negative": update(sequence=-1),
        "sequence beyond 2^63": update(sequence=2**63),
        "base negative": update(base=-1),
        "base nil": update(base=None),
        "index mode negative": update(index_mode=-1),
        "count negative": update(count=-3),
        "indices text": update(indices="abc"),
        "values list": update(values=[1.0, -2.0, 3.0]),
        "loss text": update(loss="0.5"),
        "loss float": update(loss=0.5),
        "loss beyond": update(loss=2401),
        "samples negative": update(samples=-10),
        "pull 0": update(pull=0),
        "33 facts": update(facts={str(n): n for n in range(33)}),
        "a fact of 101 characters": update(facts={"story": "x" * 101}),
        "pull negative base": pack([PULL, -1]),
        "extension type": update(sequence=msgpack.ExtType(5, b"6")),
        "invalid UTF-8": b"\x92\x03\xa2\xff\xfe",
        "array longer than the message": b"\xdd\xff\xff\xff\xff\x05",
        "bytes longer than the message": b"\x9b\x05\x06\x03\x01\x00\x03\xc6\xff\xff\xff\xff\x00",
        "arrays in arrays": b"\x9b\x05" + NESTED + b"\0" * 9,
        "arrays in arrays alone": b"\x91" * 5000,
    },
}

HELLOS: dict[str, dict[str, bytes]] = {
    "layout-mismatch": {
        "another digest": hello(layout=bytes(16)),
        "half a digest": hello(layout=LAYOUT.digest[:8]),
    },
    "protocol-version": {"1": hello(protocol=1), "3": hello(protocol=3)},
    "unexpected-record": {"a Pull first": pack([PULL, None]), "an Update first": update()},
    "malformed": {
        "no name": hello(device=""),
        "a long name": hello(device="x" * 201),
        "name as bytes": hello(device=b"stranger"),
        "secret as text": hello(secret="secret"),
        "layout as text": hello(layout=""),
        "protocol as text": hello(protocol="1"),
        "facts as a list": hello(facts=[]),
        "a fact that is a list": hello(facts={"cores": [4]}),
        "a fact that is true": hello(facts={"gpu": True}),
        "a fact that is NaN": hello(facts={"temperature": NAN}),
        "a fact without a name": hello(facts={7: 1}),
        "65 facts": hello(facts={str(n): n for n in range(65)}),
        "33 facts": hello(facts={str(n): n for n in range(33)}),
        "a fact of 101 characters": hello(facts={"story": "x" * 101}),
        "a fact's name of 101 characters": hello(facts={"x" * 101: 1}),
        "not msgpack": b"\xc1",
    },
    "frame-too-large": {"a long Hello": hello(facts={f"story {n}": "\N{SNOWMAN}" * 100 for n in range(20)})},
    "too-many-devices": {"one more": hello()},
}

Row = Any


def rows(table: dict[str, dict[str, bytes]]) -> list[Row]:
    return [
        pytest.param(code, message, id=f"{code}: {name}")
        for code, faults in table.items()
        for name, message in faults.items()
    ]


@pytest.mark.parametrize(("code", "message"), rows(UPDATES))
async def test_update_is_refused_and_the_session_goes_on(
    code: str, message: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with unchanged(tmp_path, caplog) as scene:
        scene.device.send(message)
        await refused(scene.device, code, sequence=msgpack.unpackb(message)[1])
        assert (await scene.device.ask([PULL, None]))[:2] == [MODEL, 3]


@pytest.mark.parametrize("loss", [None, 2400, -2400, 3])
async def test_any_level_is_a_loss(
    loss: int | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The loss is for people: it decides nothing, and takes nothing down."""
    async with hosting(tmp_path) as server, joined(server.port, "pi") as (device, _):
        device.send(update(sequence=1, base=0, loss=loss))
        assert await device.answer() == [RECEIPT, 1, 1]
        device.send(update(sequence=2, base=1))
        assert await device.answer() == [RECEIPT, 2, 2]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_sequence_zero_of_a_new_device(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """0 is the Welcome's word for "none yet", not an update that could be resent."""
    async with unchanged(tmp_path, caplog) as scene:
        scene.bystander.send(update(sequence=0))
        await refused(scene.bystander, "bad-sequence", sequence=0)


@pytest.mark.parametrize(("code", "message"), rows(SESSIONS))
async def test_record_ends_the_session(
    code: str, message: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with unchanged(tmp_path, caplog) as scene:
        scene.device.send(message)
        await refused(scene.device, code)


@pytest.mark.parametrize(("code", "message"), rows(HELLOS))
async def test_hello_is_refused(
    code: str, message: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ["limits.devices=2"] if code == "too-many-devices" else []
    async with unchanged(tmp_path, caplog, *settings) as scene, connected(scene.server.port) as stranger:
        await stranger.upgrade()
        stranger.send(message)
        await refused(stranger, code)


async def test_no_hello_in_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with unchanged(tmp_path, caplog) as scene:
        # Only now, when the good ones have said theirs.
        limits = scene.server.config.limits
        monkeypatch.setitem(limits.__dict__, "hello_seconds", 0.01)
        async with connected(scene.server.port) as stranger:
            await stranger.upgrade()
            await refused(stranger, "unexpected-record")


@pytest.mark.parametrize("joins", [True, False])
async def test_text_message(joins: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with unchanged(tmp_path, caplog) as scene, connected(scene.server.port) as stranger:
        device = scene.device if joins else stranger
        if not joins:
            await device.upgrade()
        device.send(b"hello", TEXT)
        await refused(device, "malformed")


async def test_frame_is_refused_by_its_announced_length(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """frame_bytes itself is allowed, and of a longer message nothing is waited for."""
    async with unchanged(tmp_path, caplog, "limits.frame_bytes=1024") as scene:
        filler = 1024 - len(update(values=bytes(300))) + 300
        longest = update(values=bytes(filler))
        assert len(longest) == 1024
        scene.device.send(longest)
        await refused(scene.device, "wrong-dtype", sequence=6)
        scene.device.writer.write(bytes([0x80 | BINARY, 0x80 | 126]) + struct.pack(">H", 1025) + bytes(4))
        assert (await scene.device.closed())[0] == 1009


@pytest.mark.parametrize("token", [None, "", "wrong", "ef1.wrong.", "efd1.wrong", "sécret", "\xff"])
async def test_wrong_token(token: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(tmp_path, closed=True) as server:
        async with connected(server.port) as device:
            status, body = await device.upgrade(token)
            assert status == 401
            assert b'"code": "unauthorized"' in body
        identity = server.enrol("pi")
        async with connected(server.port) as device:
            assert (await device.upgrade(identity.credential))[0] == 101
            device.send(hello(device="pi", layout=LAYOUT.digest))
            await refused(device, "unauthorized")
        async with link(server.port, identity=identity) as honest:
            await honest.join()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_every_code_has_a_row() -> None:
    elsewhere = {
        "dropped",
        "forbidden",
        "name-in-use",
        "no-room",
        "run-complete",
        "superseded",
        "too-slow",
        "unauthorized",
    }
    elsewhere |= {"unavailable", "quarantined"}
    elsewhere |= {"step-too-large", "too-many-refused", "run-diverged"}  # test_divergence.py
    elsewhere |= {"bad-statistics"}  # test_statistics.py
    elsewhere |= {"no-such-task", "already-computed"}  # test_tasks.py
    codes = {code for code, kind in REFUSALS.items() if not kind.__subclasses__()}
    assert UPDATES.keys() | SESSIONS.keys() | HELLOS.keys() == codes - elsewhere
    closing = [kind.status for kind in REFUSALS.values() if issubclass(kind, SessionRefused)]
    assert len(closing) == len(set(closing)), "a close code tells them apart"
