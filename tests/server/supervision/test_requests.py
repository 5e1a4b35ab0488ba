"""Requests of the server of several runs to the server of one, over a Unix socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from edgeflock.server.supervision.requests import ask, save

LARGE = bytes(range(256)) * (1 << 18) + b"end"
"""More than 64 MiB."""


@asynccontextmanager
async def answering(socket: Path, *parts: bytes) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
        await reader.readuntil(b"\r\n\r\n")
        writer.writelines(parts)
        writer.close()

    async with await asyncio.start_unix_server(serve, socket):
        yield str(socket)


def head(size: int, status: int = 200) -> bytes:
    return f"HTTP/1.0 {status} OK\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode()


async def test_a_model_of_any_size_is_saved_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "model"
    async with answering(tmp_path / "a", head(len(LARGE)), LARGE) as socket:
        assert await save(socket, "/", target) == 200
        assert target.read_bytes() == LARGE
        with pytest.raises(ConnectionError, match="more than"):
            await ask(socket, "/")
    for name, *parts in (("b", head(10), b"short"), ("c", head(10)[:-9]), ("d", b"SSH-2.0\r\n\r\n")):
        async with answering(tmp_path / name, *parts) as socket:
            with pytest.raises(ConnectionError):
                await save(socket, "/", target)
    async with answering(tmp_path / "e", head(2, 503), b"no") as socket:
        assert await save(socket, "/", target) == 503
        assert await ask(socket, "/") == (503, b"no")
    assert target.read_bytes() == LARGE
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["model"]
