"""A server that harms: the device ends in one line, and takes no more memory than a model needs."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import numpy as np
import onnx
import pytest
from aiohttp import WSMsgType, web

from edgeflock.shared.graphs.reading import read
from edgeflock.shared.graphs.writing import write
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.lora import Base
from edgeflock.shared.model.personal import Personal
from edgeflock.shared.model.start import Filling, Start
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Model, Receipt, Refusal
from tests.client.browser.node import MODULES, NODE, needs_node, write_digits
from tests.client.browser.vectors import welcome
from tests.fuzzing.graphs import GRAPHS

pytestmark = needs_node

GRAPH = (GRAPHS / "DigitsCNN.onnx").read_bytes()
SHAPES: list[Any] = [
    [port.name.removeprefix("theta/"), list(port.shape)]
    for port in read(GRAPH).inputs
    if port.name.startswith("theta/")
]
SIZE = Layout.from_shapes(SHAPES).size

HELLO, PULL, UPDATE = 1, 3, 5
Answers = Mapping[int, bytes | str | list[bytes] | None]
"""Tag of a device's record -> the answer, or several; None: it hangs up; missing: silence."""

GOOD = replace(
    welcome(adafactor=0.9375),
    layout=SHAPES,
    start=Start(7, tuple(Filling(1, -0.1, 0.1) for _ in SHAPES)),
    version=0,
    sequence=0,
    input=(1, 8, 8),
)
WELCOME = wire.encode(GOOD)
UNCHANGED = wire.encode(Model(0, 0, 3, 5, 0, b"", b"", True))

MOST_KIB = 700_000
"""The most memory that a device may take: node and onnxruntime take 200,000 of it."""


class Harm(NamedTuple):
    """What a server does, and what the device says of it."""

    answers: Answers
    said: str
    """Or another line, after a |."""
    graph: bytes = GRAPH
    lives: bool = True
    """Whether `/livez` is answered."""


@asynccontextmanager
async def serving(harms: Mapping[str, Harm]) -> AsyncIterator[str]:
    """The URL of a server that does each of `harms` below a path of its own: its number."""
    each, ended = list(harms.values()), asyncio.Event()

    def harm(request: web.Request) -> Harm:
        return each[int(request.match_info["number"])]

    async def session(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                continue
            answer = harm(request).answers.get(msgpack.unpackb(message.data)[0], [])
            if answer is None:
                break
            if isinstance(answer, str):
                await socket.send_str(answer)
                continue
            for octets in answer if isinstance(answer, list) else [answer] * isinstance(answer, bytes):
                await socket.send_bytes(octets)
        return socket

    async def livez(request: web.Request) -> web.Response:
        if not harm(request).lives:
            await ended.wait()
        return web.Response()

    async def step(request: web.Request) -> web.Response:
        return web.Response(body=harm(request).graph)

    app = web.Application()
    for path, handler in (("v1/session", session), ("livez", livez), ("v1/graphs/step", step)):
        app.router.add_get(f"/{{number}}/{path}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        ended.set()
        await runner.cleanup()


def model(**fields: Any) -> bytes:
    """A whole model, but for `fields`."""
    octets = np.zeros(SIZE, "<f4").tobytes()
    return wire.encode(replace(Model(0, None, 0, 0, SIZE, b"", octets, False), **fields))


def terms(**fields: Any) -> bytes:
    return wire.encode(replace(GOOD, **fields))


RECORDS: dict[str, tuple[Answers, str]] = {
    "a text": ({HELLO: "hello"}, "a text message"),
    "no record": ({HELLO: b"\xff" * 40}, "a record that is unknown"),
    "a list of 2^32": ({HELLO: b"\xdd\xff\xff\xff\xff\x02"}, "too many lists"),
    "lists in lists": ({HELLO: b"\x92\x02" + b"\x91" * 100_000}, "too many lists"),
    "a message of 20 MB": ({HELLO: bytes(20_000_000)}, "the server sent a message of"),
    "cut short": ({HELLO: WELCOME[:-1]}, "cut short"),
    "a layout of 2^80": (
        {HELLO: terms(layout=[["w", [1 << 40, 1 << 40]]], start=None)},
        "memory is too small",
    ),
    "another protocol": ({HELLO: terms(protocol=3)}, "speaks protocol 3"),
    "a start that overflows": (
        {HELLO: terms(start=Start(7, tuple(Filling(1, -3e38, 3e38) for _ in SHAPES)))},
        "overflows float32",
    ),
    "a batch of 2^40": ({HELLO: terms(batch=1 << 40)}, "batch = 1099511627776"),
    "a Model in place of a Welcome": ({HELLO: UNCHANGED}, "answered a Hello with a Model"),
    "a whole model of NaN": (
        {HELLO: WELCOME, PULL: model(values=np.full(SIZE, np.nan, "<f4").tobytes())},
        "NaN or infinity",
    ),
    "a model of another shape": ({HELLO: WELCOME, PULL: model(count=SIZE - 1)}, "not all of them"),
    "more bytes than a model has": ({HELLO: WELCOME, PULL: bytes(8 * SIZE + 5000)}, "this run needs"),
    "a difference from another base": (
        {HELLO: WELCOME, PULL: wire.encode(Model(9, 5, 3, 5, 0, b"", b"", True))},
        "a difference to version 5",
    ),
    "a grid of 38,282 entries in two bytes": (
        {HELLO: WELCOME, PULL: wire.encode(Model(1, 0, 3, 5, SIZE, b"ab", b"", True))},
        "do not hold",
    ),
    "a receipt for another update": (
        {HELLO: WELCOME, PULL: UNCHANGED, UPDATE: wire.encode(Receipt(99, 1, None))},
        "a receipt for another update",
    ),
    "moments that inflate to 64 MiB": (
        {
            HELLO: WELCOME,
            PULL: UNCHANGED,
            UPDATE: wire.encode(Receipt(1, 1, None, zlib.compress(bytes(1 << 26)))),
        },
        "second moments of this model are",
    ),
    **{
        f"{setting}, which browsers cannot": ({HELLO: terms(**fields)}, setting)
        for setting, fields in (
            (
                '(coordination.mode = "tasks"), and a browser cannot: take part with an installed',
                {"tasks": True},
            ),
            ('coordination.mode = "elastic"', {"elastic": 0.5}),
            ("model.lora", {"base": Base([["frozen", [3]]], bytes(32), 1.0, int8=False)}),
            ("model.module = arrays:", {"app": b"app"}),
            ("model.loss = ppo", {"loss": "ppo(clip=0.2)"}),
        )
    },
    "batches of 16 GiB": ({HELLO: terms(batch=1 << 16, input=(1, 256, 256))}, "memory is too small"),
    "a model again and again": (
        {HELLO: WELCOME, PULL: [UNCHANGED] * 20},
        "that nobody asked for|where a Receipt was due",
    ),
    "personal layers of another run": (
        {HELLO: terms(personal=Personal([["own", [3]]], Start(7, ()))), PULL: UNCHANGED},
        "personal layers are not those of its run",
    ),
    "personal layers of 2^40": (
        {HELLO: terms(personal=Personal([["own", [1 << 40]]], Start(7, (Filling(1, -0.1, 0.1),))))},
        "memory is too small",
    ),
    "a refusal of many lines": (
        {HELLO: wire.encode(Refusal("dro\npped", "go\n\x1b[31m" * 5000, None))},
        "dro pped: go",
    ),
}


def with_a_step_of_gigabytes() -> bytes:
    """Its first constant of a shape asks for a tensor that no device has room for."""
    graph = read(GRAPH)
    name = next(name for name, one in graph.constants.items() if one.type == 7 and one.shape == (2,))
    huge = graph.constants[name]._replace(octets=np.array([1 << 38, 1 << 38], "<i8").tobytes())
    return write(replace(graph, constants={**graph.constants, name: huge}))


def with_external_data() -> bytes:
    """A constant whose entries are in the file /etc/passwd, as ONNX allows (TensorProto.external_data)."""
    model = onnx.load_model_from_string(GRAPH)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    return bytes(model.SerializeToString())


def with_tokens() -> bytes:
    graph = read(GRAPH)
    ports = tuple(port._replace(type=7) if port.name == "x" else port for port in graph.inputs)
    return write(replace(graph, inputs=ports))


GRAPHS_THAT_HARM: dict[str, tuple[bytes, str]] = {
    "no graph": (b"<html>", "the server's graph is not one"),
    "one of 17 MB": (bytes(17 << 20), "more than 16777216 bytes of v1/graphs/step"),
    "one of another model": ((GRAPHS / "normed.onnx").read_bytes(), "the server's graph is not one"),
    "one that reshapes to gigabytes": (with_a_step_of_gigabytes(), "the server's graph is not one"),
    "one whose weights are in a file": (with_external_data(), "a constant has a field"),
    "one that takes tokens": (with_tokens(), "whole numbers such as tokens"),
}


TRAINS = {HELLO: WELCOME, PULL: UNCHANGED}

HARMS: dict[str, Harm] = {
    **{name: Harm(answers, said) for name, (answers, said) in RECORDS.items()},
    **{name: Harm(TRAINS, said, graph) for name, (graph, said) in GRAPHS_THAT_HARM.items()},
    "no answer to a Hello": Harm({}, "has sent nothing for 0.5 s; given up after 0.5 s", lives=False),
    "no answer to a Pull": Harm({HELLO: WELCOME}, "has sent nothing for 0.5 s", lives=False),
    "no answer to an update": Harm(TRAINS, "has sent nothing for 0.5 s", lives=False),
    "a hang-up": Harm({HELLO: WELCOME, PULL: None}, "closed the connection"),
}


@pytest.mark.parametrize("kind", [pytest.param("node", marks=pytest.mark.slow), "browser"])
async def test_each_harm_ends_in_one_line(tmp_path: Path, kind: str) -> None:
    """With node's WebSocket, and with a browser's, which has no limit on a message."""
    assert NODE is not None
    write_digits(tmp_path)
    script = Path(__file__).with_name("harm.mjs")
    async with serving(HARMS) as url:
        process = await asyncio.create_subprocess_exec(
            NODE, str(script), str(MODULES), str(tmp_path), url, str(len(HARMS)), kind,
            stdout=asyncio.subprocess.PIPE, limit=1 << 20,
        )  # fmt: skip
        reported = [json.loads(line) for line in (await process.communicate())[0].splitlines()]
    assert process.returncode == 0
    *endings, peak = reported
    for (name, harm), ending in zip(HARMS.items(), endings, strict=True):
        line = str(ending["reason"])
        assert any(said in line for said in harm.said.split("|")), f"{name}: {line}"
        assert ending["why"] in ("failed", "refused")
        assert line.isprintable()
        assert len(line) < 500
        assert "file:" not in line, "no stack"
    assert peak["peak"] < MOST_KIB
