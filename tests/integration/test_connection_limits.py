"""What is begun and never finished, or comes in too large a number: it ends, and an honest device is served.

Over real sockets. None of these connections needs a token.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgpack
import pytest

from edgeflock.shared.model.layout import Layout
from tests.hosting import LAYOUT, Hosted, hosting
from tests.integration.foreign_client import (
    BINARY,
    MODEL,
    PING,
    PULL,
    RECEIPT,
    Device,
    connected,
    frame,
    joined,
    pack,
)
from tests.integration.operator import ADMIN
from tests.integration.scene import hello, refused, update
from tests.integration.test_client_certificates import of
from tests.integration.test_reconnect import update as good

SOON = "limits.request_seconds=0.3"
HEAD = b"GET /v1/session HTTP/1.1\r\nHost: server.example\r\n"


def patient(server: Hosted) -> None:
    """With whoever comes from now on."""
    limits = server.connection_limits.limits
    server.connection_limits.limits = limits.model_copy(update={"request_seconds": 3600})


async def ended(device: Device) -> bytes:
    """What a server says before it hangs up."""
    try:
        async with asyncio.timeout(300):
            return await device.reader.read()
    except ConnectionError:
        return b""


async def serves(port: int, name: str = "honest") -> None:
    async with joined(port, name) as (device, _):
        assert (await device.ask([PULL, None]))[0] == MODEL
        assert (await device.ask(msgpack.unpackb(update(sequence=1, base=0))))[0] == RECEIPT


async def drip(device: Device, octets: bytes, seconds: float) -> None:
    """A byte at a time, for as long as the server lets it."""
    for octet in octets:
        if device.reader.at_eof():
            return
        device.writer.write(bytes([octet]))
        await asyncio.sleep(seconds)


@pytest.mark.parametrize(
    ("begun", "answer"),
    [
        (b"", b""),
        (b"G", b"HTTP/1.1 408 "),
        (HEAD, b"HTTP/1.1 408 "),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET /li", b"HTTP/1.1 200 "),
        (b"GET /" + b"x" * 9000, b"HTTP/1.0 400 "),
    ],
    ids=["nothing", "a byte", "half a head", "half a second request", "a long line"],
)
async def test_a_request_that_is_begun_ends(begun: bytes, answer: bytes, tmp_path: Path) -> None:
    async with hosting(tmp_path, SOON) as server:
        said = None
        while said is None or (answer and not said):  # what takes so long to begin is told nothing
            async with connected(server.port) as stranger:
                stranger.writer.write(begun)
                said = await ended(stranger)
        assert said.startswith(answer)
        patient(server)
        await serves(server.port)


async def test_a_request_that_comes_byte_by_byte_ends(tmp_path: Path) -> None:
    async with hosting(tmp_path, SOON) as server, connected(server.port) as stranger:
        dripping = asyncio.create_task(drip(stranger, HEAD + b"X: " + b"y" * 10_000, 0.02))
        assert (await ended(stranger))[:13] in (b"HTTP/1.1 408 ", b"")
        dripping.cancel()


async def test_an_actions_body_that_never_comes_ends(tmp_path: Path) -> None:
    async with hosting(tmp_path, SOON, closed=True, admin_token=ADMIN) as server:
        patient(server)
        async with connected(server.port) as slow:
            slow.writer.write(
                b"POST /v1/learning_rate HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n"
                b"Authorization: Bearer " + ADMIN.encode() + b"\r\n\r\n{"
            )
            assert (await slow.reader.readline()).startswith(b"HTTP/1.1 408 ")


@asynccontextmanager
async def half_sent(port: int, number: int) -> AsyncIterator[list[Device]]:
    async with AsyncExitStack() as opened:
        strangers = [await opened.enter_async_context(connected(port)) for _ in range(number)]
        for stranger in strangers:
            stranger.writer.write(HEAD)
        yield strangers


async def test_many_half_sent_requests_keep_nobody_out(tmp_path: Path) -> None:
    """Nor do they wait for the clock: the oldest goes when one too many comes."""
    async with (
        hosting(tmp_path, "limits.unauthenticated=20") as server,
        half_sent(server.port, 60) as strangers,
    ):
        await serves(server.port)
        for oldest in strangers[:40]:
            assert (await ended(oldest))[:13] in (b"HTTP/1.1 503 ", b"")


async def test_a_known_device_is_no_stranger(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, "limits.unauthenticated=3") as server,
        AsyncExitStack() as opened,
    ):
        devices = [await opened.enter_async_context(joined(server.port, f"pi-{n}")) for n in range(6)]
        async with half_sent(server.port, 12):
            for device, _ in devices:
                assert (await device.ask([PULL, None]))[0] == MODEL


async def test_an_address_has_so_many_connections(tmp_path: Path) -> None:
    async with hosting(tmp_path, "limits.address_connections=3") as server:
        async with half_sent(server.port, 3), connected(server.port) as one_more:
            answer = await ended(one_more)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"limits.address_connections" in answer
        while True:  # the server learns of their leaving when its loop comes to it
            async with connected(server.port) as device:
                device.writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                if (await ended(device)).startswith(b"HTTP/1.1 200 "):
                    break


async def test_a_message_that_is_begun_ends(tmp_path: Path) -> None:
    async with hosting(tmp_path, "limits.message_seconds=0.3") as server:
        async with joined(server.port, "pi") as (device, _), joined(server.port, "other") as (other, _):
            await asyncio.sleep(0.6)  # silence is no message
            device.writer.write(frame(update())[:20])
            await refused(device, "too-slow")
            assert (await other.ask([PULL, None]))[0] == MODEL
        assert server.hub.tally.refusals["too-slow"] == 1


async def test_a_message_that_comes_byte_by_byte_ends(tmp_path: Path) -> None:
    async with hosting(tmp_path, "limits.message_seconds=0.3") as server:
        async with joined(server.port, "pi") as (device, _):
            dripping = asyncio.create_task(drip(device, frame(bytes(1000)), 0.02))
            await refused(device, "too-slow")
            dripping.cancel()


async def test_pings_between_fragments_do_not_stop_the_clock(tmp_path: Path) -> None:
    async with hosting(tmp_path, "limits.message_seconds=0.3") as server:
        async with joined(server.port, "pi") as (device, _):
            first = bytearray(frame(bytes(10)))
            first[0] &= 0x7F
            device.writer.write(bytes(first))
            pinging = asyncio.create_task(drip(device, frame(b"", PING) * 200, 0.01))
            opcode = 0x8A
            while opcode == 0x8A:
                opcode, length = await device.reader.readexactly(2)
                answer = await device.reader.readexactly(
                    length if length < 126 else int.from_bytes(await device.reader.readexactly(2), "big")
                )
            assert (opcode, msgpack.unpackb(answer)[1]) == (0x80 | BINARY, "too-slow")
            pinging.cancel()


@pytest.mark.parametrize("lets_in", [True, False])
async def test_an_unmasked_frame_ends_the_session(lets_in: bool, tmp_path: Path) -> None:
    async with hosting(tmp_path) as server, connected(server.port) as device:
        await device.upgrade()
        if lets_in:
            device.send(hello())
            await device.answer()
        question = pack([PULL, None]) if lets_in else hello()
        device.writer.write(bytes([0x80 | BINARY, len(question)]) + question)
        assert (await device.closed())[0] == 1002
        await serves(server.port)


async def test_frames_do_not_come_before_the_answer_to_the_request(tmp_path: Path) -> None:
    """Where the request ends and the first frame begins would be open to question."""
    async with hosting(tmp_path) as server, connected(server.port) as device:
        device.writer.write(
            b"GET /v1/session HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            + frame(hello())
        )
        assert (await ended(device)).startswith(b"HTTP/1.1 400 ")
        await serves(server.port)


async def test_before_its_hello_a_device_sends_nothing_large(tmp_path: Path) -> None:
    async with hosting(tmp_path) as server, connected(server.port) as device:
        await device.upgrade()
        device.writer.write(frame(bytes(5000))[:10])
        await refused(device, "frame-too-large")


HALF = b"\x82\xff" + (700_000).to_bytes(8, "big") + bytes(4 + 600_000)
"""Of a message."""
LARGE = Layout.from_shapes([("w", (100_000,))])


async def test_unfinished_messages_have_one_budget(tmp_path: Path) -> None:
    """Whoever holds the most of it for the longest goes; whoever sends little is served all the while."""
    settings = ["limits.inflight_bytes=2000000"]
    async with hosting(tmp_path, *settings, layout=LARGE) as server, AsyncExitStack() as opened:
        hostile = [await opened.enter_async_context(joined(server.port, f"h-{n}")) for n in range(8)]
        async with joined(server.port, "honest") as (honest, _):
            for device, _ in hostile:
                device.writer.write(HALF)
                await device.writer.drain()
                assert (await honest.ask([PULL, 0]))[0] == MODEL
            await refused(hostile[0][0], "no-room")
            assert server.hub.tally.refusals["no-room"] >= 5
            assert (await honest.ask([PULL, 0]))[0] == MODEL
        assert server.hub.tally.refusals["no-room"] < 8, "there is room for some"


async def test_what_left_takes_no_room(tmp_path: Path) -> None:
    settings = ["limits.inflight_bytes=1000000"]
    async with hosting(tmp_path, *settings, layout=LARGE) as server:
        for turn in range(5):
            async with joined(server.port, f"pi-{turn}") as (device, _):
                device.writer.write(HALF)
                await device.writer.drain()
                device.writer.transport.abort()
        await serves(server.port)
        assert server.hub.tally.refusals["no-room"] < 5


async def test_a_devices_limit_is_what_its_model_needs(tmp_path: Path) -> None:
    async with hosting(tmp_path) as server, joined(server.port, "pi") as (device, welcome):
        longest = welcome[18]
        assert 8 * LAYOUT.size < longest < 8 * LAYOUT.size + (1 << 16)
        device.writer.write(b"\x82\xff" + (longest + 1).to_bytes(8, "big") + bytes(4))
        assert (await device.closed())[0] == 1009


async def test_lines_that_drop_while_they_are_let_in_are_no_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosting(tmp_path, "limits.unauthenticated=4") as hosted:
        lines = []
        for number in range(40):
            _, writer = await asyncio.open_connection("127.0.0.1", hosted.port)
            writer.write(
                b"GET /v1/session HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            lines.append(writer)
            if number % 3 == 0:
                writer.transport.abort()
        async with joined(hosted.port, "pi") as (device, _):
            assert (await device.ask([PULL, None]))[0] == MODEL
        for writer in lines:
            writer.transport.abort()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


# TLS


async def test_handshakes_that_never_finish_keep_nobody_out(tmp_path: Path) -> None:
    """Strangers like any other: the oldest goes when one too many comes, and nobody waits for the clock."""
    async with (
        hosting(tmp_path, "limits.unauthenticated=20", with_tls=True) as server,
        AsyncExitStack() as opened,
    ):
        shaking = [await opened.enter_async_context(connected(server.port)) for _ in range(60)]
        for number, stranger in enumerate(shaking):
            stranger.writer.write(HELLO_OF_TLS[: number % 3 * 2])
        async with of(server, server.enrol("pi")) as device:
            await device.join()
        for oldest in shaking[:40]:
            assert await ended(oldest) == b""


HELLO_OF_TLS = bytes([22, 3, 1, 2, 0, 1])
"""The beginning of a ClientHello."""


async def test_a_handshake_that_is_begun_ends(tmp_path: Path) -> None:
    async with hosting(tmp_path, SOON, with_tls=True) as server, connected(server.port) as stranger:
        stranger.writer.write(HELLO_OF_TLS)
        assert await ended(stranger) == b""


async def test_handshakes_count_for_their_address(tmp_path: Path) -> None:
    settings = "limits.address_connections=3"
    async with hosting(tmp_path, settings, with_tls=True) as server, AsyncExitStack() as opened:
        shaking = [await opened.enter_async_context(connected(server.port)) for _ in range(3)]
        async with connected(server.port) as one_more:
            assert await ended(one_more) == b""
        for stranger in shaking:
            stranger.writer.transport.abort()
        async with of(server, server.enrol("pi")) as device:
            await device.join()
            assert (await device.push(good(1, 0))).version == 1
