"""What a device does not take from a server: each breach ends its part with a line that says what it was."""

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest
from aiohttp import web

from edgeflock.client.identity import ClientIdentity
from edgeflock.client.training.terms import layout_of, longest_message
from edgeflock.client.transport import Link, dialing, downloads
from edgeflock.shared.errors import ConfigError, Refused, RunOver, ServerAtFault
from edgeflock.shared.identity import new_key
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import CONSTANT, Filling, Start
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import PROTOCOL, Hello, Record, Refusal, Samples, Stop
from edgeflock.shared.protocol.shown import printable
from tests.client.training.fakes import LAYOUT, WELCOME, model_at
from tests.fuzzing.records import CORPUS, GOOD, hostile_sessions, outcomes

# Welcomes

MEMORY = 1 << 30

UNMEANT: dict[str, tuple[dict[str, Any], str]] = {
    "another protocol": ({"protocol": 1}, "speaks protocol 1, this device 2"),
    "a run that clears the screen": ({"run": "\x1b[2J"}, r"run = '\\x1b\[2J', which is not valid"),
    "a model of a book": ({"model": "x" * 10_000}, "model = 'xxx"),
    "a loss that rings": ({"loss": "mse\x07"}, r"loss = 'mse\\x07', which is not valid"),
    "a sample of nothing": ({"input": (3, 0)}, r"input = \[3, 0\], which is not valid"),
    "a sample beyond all memory": ({"input": (1 << 30, 1 << 30)}, "input = .*, which is not valid"),
    "a sample of nine dimensions": ({"input": (1,) * 9}, "input = .*, which is not valid"),
    "no batch": ({"batch": 0}, "batch = 0, which is not valid: it must be 1 to 65536"),
    "a batch without an end": ({"batch": 1 << 40}, "batch = 1099511627776, which is not valid"),
    "steps without an end": ({"local_steps": 1 << 60}, "local_steps = 1152921504606846976, which"),
    "steps of large batches": (
        {"batch": 1 << 16, "local_steps": 257},
        "local_steps = 257, which is not valid",
    ),
    "no step": ({"local_steps": 0}, "local_steps = 0"),
    "steps backwards": ({"local_rate": -0.5}, "local_rate = -0.5"),
    "steps too far": ({"local_rate": float("inf")}, "local_rate = inf"),
    "nothing to send": ({"select": 0.0}, "select = 0.0"),
    "more than all to send": ({"select": 1.5}, "select = 1.5"),
    "no number to send": ({"select": float("nan")}, "select = nan"),
    "balance": ({"balance": -1e9}, "balance = -1000000000.0"),
    "threshold": ({"threshold": 7.0}, "threshold = 7.0"),
    "feedback": ({"feedback": 1e30}, r"feedback = 1e\+30"),
    "alpha": ({"alpha": 2.0}, "alpha = 2.0"),
    "beta": ({"beta": float("nan")}, "beta = nan"),
    "unknown indices": ({"indices": 9}, "indices = 9"),
    "unknown values": ({"values": 9}, "values = 9"),
    "indices that do not go with values": ({"indices": 3}, "indices and values = '3 and 0'"),
    "a last sequence": ({"sequence": (1 << 63) - 1}, "sequence = 9223372036854775807"),
    "a version out of reach": ({"version": (1 << 63) - 1}, "version = 9223372036854775807"),
    "no message": ({"frame_bytes": 0}, "frame_bytes = 0"),
    "a tensor larger than any memory": (
        {"layout": [["w", [1 << 30, 1 << 30]]]},
        "has 11529215046068469",
    ),
    "a tensor larger than this memory": ({"layout": [["w", [1 << 26]]]}, "this device's memory is too small"),
    "an impossible dimension": ({"layout": [["w", [1 << 60]]]}, "entry 0 of the server's layout is no name"),
    "less than nothing": ({"layout": [["w", [-1, -4]]]}, "entry 0 of the server's layout"),
    "dimensions of another kind": ({"layout": [["w", [2.5]]]}, "entry 0 of the server's layout"),
    "many dimensions": ({"layout": [["w", [1] * 9]]}, "entry 0 of the server's layout"),
    "many tensors": ({"layout": [[str(n), [1]] for n in range(10_001)]}, "10001 tensors; at most 10000"),
    "no tensor": ({"layout": []}, "the model has no parameters"),
    "no list": ({"layout": ["w"]}, "entry 0"),
    "a name that is none": ({"layout": [[b"w", [1]]]}, "entry 0"),
    "a name that rings": ({"layout": [["\x07", [1]]]}, "entry 0"),
    "a long name": ({"layout": [["w" * 301, [1]]]}, "entry 0"),
    "a name twice": ({"layout": [["w", [1]], ["w", [2]]]}, "two tensors of the same name"),
    "a buffer before a parameter": ({"layout": [["b", [1], True], ["w", [2]]]}, "buffers must be last"),
    "a first model of another layout": (
        {"start": Start(1, (Filling(CONSTANT, 0.0, 0.0),))},
        "start has 1 tensors, its layout 2",
    ),
}


@pytest.mark.parametrize(("fields", "said"), UNMEANT.values(), ids=UNMEANT.keys())
def test_a_welcome_that_cannot_be_meant_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ServerAtFault, match=said) as raised:
        layout_of(replace(WELCOME, **fields), MEMORY)
    assert len(str(raised.value)) < 300
    assert str(raised.value).isprintable()


def test_one_that_can_is_taken() -> None:
    assert layout_of(WELCOME, MEMORY) == LAYOUT


# Over sockets: a server that says what it likes


@asynccontextmanager
async def saying(*answers: Record | bytes | str, **settings: Any) -> AsyncIterator[Link]:
    """A link to a server that answers one question after the other with these, the first one the Hello."""

    async def talk(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        for answer in answers:
            await socket.receive()
            if isinstance(answer, str):
                await socket.send_str(answer)
            else:
                await socket.send_bytes(answer if isinstance(answer, bytes) else wire.encode(answer))
        await socket.receive()
        return socket

    app = web.Application()
    app.router.add_get("/v1/session", talk)
    async with listening(app) as url:
        async with Link(url, None, Hello(PROTOCOL, "pi", b"", {}), Random(0), **settings) as link:
            yield link


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


NO_RECORDS: dict[str, tuple[bytes | str, str]] = {
    "text": ("hello", "a text message, where all are binary"),
    "nothing": (b"", "an invalid record"),
    "a number": (b"\x05", "an invalid record"),
    "half a record": (wire.encode(model_at(3))[:-3], "an invalid record"),
    "two records": (wire.encode(Stop("over")) * 2, "an invalid record"),
    "an unknown one": (b"\x91\x7f", "record type 127 is unknown"),
    "lists within lists": (nested(900), "an invalid record"),
    "empty lists": (b"\xdd\x00\x00\x04\x00" + b"\x90" * 1024, "an invalid record"),
    "a list that is announced": (b"\xdd\xff\xff\xff\xff", "an invalid record"),
    "a map that is announced": (b"\xdf\xff\xff\xff\xff", "an invalid record"),
    "bytes that are announced": (b"\xc6\xff\xff\xff\xff", "an invalid record"),
    "longer than this run's": (bytes(longest_message(LAYOUT) + 1), "4209 bytes; this run needs 4208 at most"),
    "an answer to something else": (wire.encode(WELCOME), "answered a Pull with a Welcome"),
    "samples of nobody": (
        wire.encode(Samples(1, True, b"x", True, bytes(4))),
        "but this device does not share any",
    ),
}


@pytest.mark.parametrize(("answer", "said"), NO_RECORDS.values(), ids=NO_RECORDS.keys())
async def test_an_answer_that_is_none_ends_it(answer: bytes | str, said: str) -> None:
    async with saying(WELCOME, answer) as link:
        await link.join()
        with pytest.raises(ServerAtFault, match=said):
            await link.pull(None)


async def test_a_message_without_an_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "LONGEST_WELCOME", 1000)
    async with saying(bytes(5000)) as link:
        with pytest.raises(ServerAtFault, match="broke the WebSocket protocol: .*1001"):
            await link.join()


async def test_a_welcome_is_looked_at_before_anything_else() -> None:
    async with saying(replace(WELCOME, batch=1 << 40)) as link:
        with pytest.raises(ServerAtFault, match="batch = 1099511627776"):
            await link.join()


async def test_a_large_model_gets_the_messages_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one connection more; and not longer ones."""
    monkeypatch.setattr(dialing, "LONGEST_WELCOME", 1000)
    layout = Layout.from_shapes([("w", (300,))])
    welcome = replace(WELCOME, layout=list(layout.shapes()))
    model = replace(model_at(3), count=300, values=bytes(1200))
    async with saying(welcome, model, bytes(longest_message(layout) + 1)) as link:
        await link.join()
        assert link.connections == 2
        assert await link.pull(None) == model
        with pytest.raises(ServerAtFault, match="exceeds limit 6497"):
            await link.pull(None)


async def test_a_model_for_which_there_is_no_memory_is_not_pulled() -> None:
    async with saying(WELCOME, memory=300) as link:
        with pytest.raises(
            ServerAtFault,
            match="14 entries in 12 rows and columns, for which this device's memory is too small",
        ):
            await link.join()


ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\n" + "x" * 4000


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Refusal("bad-samples", ESCAPES, None), Refused),
        (Refusal("no-such-code", ESCAPES, None), Refused),
        (Stop(ESCAPES), RunOver),
    ],
)
async def test_what_a_server_writes_is_one_line_that_does_nothing(
    answer: Record, error: type[Exception]
) -> None:
    async with saying(WELCOME, answer) as link:
        await link.join()
        with pytest.raises(error) as raised:
            await link.pull(None)
    assert str(raised.value) == printable(ESCAPES)


def test_text_is_shown_as_it_is_but_for_what_terminals_obey() -> None:
    assert printable("caf\u00e9 \u2713") == "caf\u00e9 \u2713"
    assert printable("a\x1b[2Jb\nc\u202ed") == "a\\x1b[2Jb\\nc\\u202ed"
    assert printable("x" * 301) == "x" * 300 + "..."


# Over HTTP


def identity(url: str) -> ClientIdentity:
    return ClientIdentity(url, "pi", "secret", new_key(), bytes(16))


@asynccontextmanager
async def serving(answer: Any) -> AsyncIterator[Link]:
    app = web.Application()
    app.router.add_get("/v1/graphs/step", answer)
    app.router.add_get("/v1/session", answer)
    async with (
        listening(app) as url,
        Link(
            url,
            ClientIdentity(url, "pi", "secret", new_key(), bytes(16)),
            Hello(PROTOCOL, "pi", b"", {}),
            Random(0),
        ) as link,
    ):
        yield link


@pytest.mark.parametrize("packed", [False, True])
async def test_a_graph_without_an_end_is_not_read_to_its_end(
    packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "LONGEST_GRAPH", 100_000)

    async def answer(request: web.Request) -> web.StreamResponse:
        if packed:
            return web.Response(body=gzip.compress(bytes(1 << 24)), headers={"Content-Encoding": "gzip"})
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(1 << 16))
        except ConnectionError:
            return response

    async with serving(answer) as link:
        with pytest.raises(ServerAtFault, match="/v1/graphs/step answered with more than 100000 bytes"):
            await link.downloads.graph("step")


@pytest.mark.parametrize(
    "body", [b'{"detail": "' + b"x" * 5000 + b'\\u001b[2J"}', b"[" * 60_000, b'{"detail": {}}', b"\xff"]
)
async def test_why_there_is_no_graph_is_one_line(body: bytes) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=422, content_type="application/json")

    async with serving(answer) as link:
        with pytest.raises(ConfigError, match="gives no graph") as raised:
            await link.downloads.graph("step")
    assert len(str(raised.value)) < 500
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("what", ["session", "graph"])
async def test_a_device_is_not_sent_elsewhere(what: str) -> None:
    """Or a server could have it ask anything within its own network."""
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response()

    other = web.Application()
    other.router.add_get("/admin", elsewhere)
    async with listening(other) as there:

        async def answer(request: web.Request) -> web.StreamResponse:
            raise web.HTTPFound(f"{there}/admin")

        async with serving(answer) as link:
            with pytest.raises(ConfigError, match="on to .*/admin: .* name it in client.server"):
                await (link.join() if what == "session" else link.downloads.graph("step"))
    assert asked == []


# Anything


def test_good_sessions_are_good() -> None:
    assert outcomes(GOOD) == {"over": 1, "Dropped": 1}


def test_hostile_sessions_end_as_they_should() -> None:
    ended = outcomes(islice(hostile_sessions(15), 3000))
    assert ended["ServerAtFault"] > 1000
    assert ended["over"] > 30, "some damage is none"


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.msgpack")), ids=lambda path: path.stem)
def test_what_once_broke_something_breaks_nothing(path: Path) -> None:
    assert sum(outcomes([tuple(msgpack.unpackb(path.read_bytes()))]).values()) == 1
