"""Connections to a run, byte by byte: what is routed, what is refused, and how much waits in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgpack
import pytest
from aiohttp import web

from edgeflock.server.connections import ConnectionLimits, Meter
from edgeflock.server.connections.forwarding import ForwardedOrigin
from edgeflock.server.connections.listening import bind
from edgeflock.server.supervision import switch
from edgeflock.server.supervision.switch import Account, Destination, Switch
from edgeflock.shared.settings.limits import LimitSettings


@dataclass
class Scene:
    """A switch on 127.0.0.1 before a run `a` that records what it gets, and a run `b` that is paused."""

    port: int
    received: list[bytes] = field(default_factory=list)
    readers: list[asyncio.StreamReader] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    forwarded: set[Switch] = field(default_factory=set)

    async def ask(self, octets: bytes) -> bytes:
        """All that is answered."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(octets)
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
        return answer


@asynccontextmanager
async def scene(folder: Path, *, answers: bool = True, **limits: float) -> AsyncIterator[Scene]:
    made = Scene(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(2), "big")
        preamble = await reader.readexactly(size)
        made.readers.append(reader)
        made.writers.append(writer)
        if answers:
            made.received.append(preamble)
            made.received.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            writer.close()

    async def own(request: web.Request) -> web.Response:
        response = web.Response(text=f"own {request.raw_path}")
        response.force_close()
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", own)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    assert runner.server is not None
    connection_limits = ConnectionLimits(LimitSettings.model_validate(limits))
    inner = runner.server
    runs = {"a": Destination(str(folder / "a")), "b": Destination("", "run b is paused")}

    def made_switch() -> Switch:
        return Switch(inner, connection_limits, runs.get, _account, made.forwarded)

    async with (
        await asyncio.start_unix_server(serve, folder / "a", limit=1 << 16),
        bind(connection_limits.protocol(made_switch, Meter()), "127.0.0.1", 0) as made.port,
    ):
        yield made
        for writer in made.writers:
            writer.transport.abort()
        for one in list(made.forwarded):
            one.transport.abort()
        for _ in range(5):  # what was aborted is closed
            await asyncio.sleep(0)
    await runner.cleanup()


def _account(headers: dict[str, str]) -> Account:
    return Account("admin", "root") if headers.get("authorization") == "Bearer root" else Account()


def request(target: str, *headers: str, method: str = "GET") -> bytes:
    lines = "".join(f"{header}\r\n" for header in ("Host: x", *headers))
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode()


async def test_the_run_gets_the_request_below_its_prefix_and_who_asks(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        answer = await here.ask(request("/v1/runs/a/v1/status?x=%2F", "Authorization: Bearer root"))
        assert answer.endswith(b"ok")
        preamble, head = here.received
        origin = ForwardedOrigin(*msgpack.unpackb(preamble))
        assert (origin.address, origin.secure, origin.role, origin.account) == (
            "127.0.0.1",
            False,
            "admin",
            "root",
        )
        assert head == b"GET /v1/status?x=%2F HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer root\r\n\r\n"


async def test_nobody_can_say_who_he_is_for_the_server(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        await here.ask(request("/v1/runs/a/", "Authorization: Bearer guess", "X-Forwarded-For: 9.9.9.9"))
        origin = ForwardedOrigin(*msgpack.unpackb(here.received[0]))
        assert (origin.address, origin.role) == ("127.0.0.1", "")


async def test_hostile_paths_reach_no_run(tmp_path: Path) -> None:
    """Names are compared as they are: nothing is decoded, and no dots lead anywhere."""
    async with scene(tmp_path) as here:
        for target in (
            "/v1/runs/%61/v1/status",
            "/v1/runs/../a/v1/status",
            "/v1/runs/b/../a/",
            "/v1/runs//a/",
            "/v1/runs/a%2f../b",
            "//v1/runs/a/",
            "/V1/runs/a/",
            "/v1/runs/a",
            "/v1/runs/a?/x",
            "/v1/runs/a/pause",
            f"/v1/runs/{'a' * 65}/",
            "http://x/v1/runs/a/",
            "*",
        ):
            answer = await here.ask(request(target))
            assert here.received == [], target
            assert b"own" in answer or b" 503 " in answer or b" 400 " in answer or b" 404 " in answer, target
        assert b'"unknown-run"' in await here.ask(request("/v1/runs/c/"))
        assert b"run b is paused" in await here.ask(request("/v1/runs/b/v1/session"))
        await here.ask(request("/v1/runs/a/../b/x"))
        assert here.received[1].startswith(b"GET /../b/x "), "for the server of a to judge"


async def test_a_head_is_bounded_and_comes_in_time(tmp_path: Path) -> None:
    async with scene(tmp_path, request_seconds=0.5) as here:
        assert b" 431 " in await here.ask(b"GET /v1/runs/a/ HTTP/1.1\r\nX: " + b"x" * (1 << 16))
        assert b" 408 " in await here.ask(b"GET /v1/runs/a/ HTT")
        assert here.received == []


async def test_what_is_not_read_is_not_taken(tmp_path: Path) -> None:
    """A run's server or a caller that reads nothing stops the other side; this server holds two buffers."""
    async with scene(tmp_path, answers=False) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port, limit=1 << 16)
        writer.transport.set_write_buffer_limits(high=0)
        writer.write(request("/v1/runs/a/v1/session"))
        chunk, sent = bytes(1 << 20), [0, 0]

        async def send(side: int, target: asyncio.StreamWriter) -> None:
            for _ in range(64):
                target.write(chunk)
                await target.drain()
                sent[side] += len(chunk)

        while not here.writers:
            await asyncio.sleep(0.01)
        here.writers[0].transport.set_write_buffer_limits(high=0)
        sending = [asyncio.create_task(send(*one)) for one in enumerate((writer, here.writers[0]))]
        before = [-1, -1]
        while before != sent or not here.forwarded:  # until both stand still
            before = sent[:]
            await asyncio.sleep(0.5)
        (one,) = here.forwarded
        assert one._far_side is not None
        for side in (one.transport, one._far_side.transport):
            assert side.get_write_buffer_size() < 1 << 20
        assert max(sent) < 48 << 20, "the kernel's buffers, and not all of it"
        taken = await reader.readexactly(1 << 20)
        assert len(taken) == 1 << 20
        for task in sending:
            task.cancel()
        await asyncio.wait(sending)
        writer.transport.abort()


async def test_the_end_of_one_side_ends_the_other(tmp_path: Path) -> None:
    async with scene(tmp_path, answers=False) as here:
        for ends_at_run in (True, False):
            here.writers.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
            writer.write(request("/v1/runs/a/v1/session"))
            while not here.writers:
                await asyncio.sleep(0.01)
            if ends_at_run:
                here.writers[0].write(b"last")
                here.writers[0].close()
                assert await reader.read() == b"last"
                writer.close()
            else:
                writer.close()
                await here.readers[-1].read()
                here.writers[0].close()
            while here.forwarded:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("ends", ["caller", "run"])
async def test_an_end_behind_unread_bytes_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """As of a device that is stopped in a download, whose run's server gives it up."""
    monkeypatch.setattr(switch, "_FLUSH_SECONDS", 0.01)
    async with scene(tmp_path, answers=False) as here:
        _, writer = await asyncio.open_connection("127.0.0.1", here.port, limit=1 << 10)
        writer.write(request("/v1/runs/a/v1/session"))
        while not (here.forwarded and here.writers):
            await asyncio.sleep(0.01)
        (one,) = here.forwarded
        assert one._far_side is not None
        sender, read_from = (
            (writer, one.transport) if ends == "caller" else (here.writers[0], one._far_side.transport)
        )
        while read_from.is_reading():
            sender.write(bytes(1 << 20))
            await asyncio.sleep(0.01)
        one.look_for_end()
        assert not one._is_ending, "both sides are there"
        sender.transport.abort()
        async with asyncio.timeout(60):
            while here.forwarded:
                one.look_for_end()
                await asyncio.sleep(0.01)
        writer.transport.abort()
