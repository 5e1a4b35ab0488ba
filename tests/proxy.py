"""A TCP proxy for tests: counts what passes, moves to another server, and cuts lines at chosen moments."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass(slots=True)
class Proxy:
    """Bytes to and from the server so far, and what to do with the next ones."""

    target: int
    """The server's port; new connections go there."""
    port: int = 0
    upstream: int = 0
    downstream: int = 0
    connections: int = 0
    cut_upstream: Callable[[bytes], bool] = lambda chunk: False
    """Cut the line instead of handing this chunk to the server?"""
    cut_downstream: Callable[[bytes], bool] = lambda chunk: False
    """Cut the line instead of handing this chunk to the device?"""
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    """Of each line its device's and its server's, in turn."""

    def say(self, chunk: bytes) -> None:
        """Bytes to all devices, in the server's name."""
        for writer in self.writers[::2]:
            writer.write(chunk)

    def cut_all(self) -> None:
        """Drop every line at once, without a word."""
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self.writers += [writer, server_writer]
        with suppress(OSError):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._up(reader, server_writer))
                group.create_task(self._down(server_reader, writer))
        writer.transport.abort()
        server_writer.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                if self.cut_upstream(chunk):
                    self.cut_all()
                    return
                self.upstream += len(chunk)
                writer.write(chunk)
                await writer.drain()
            writer.write_eof()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                self.downstream += len(chunk)
                if self.cut_downstream(chunk):
                    self.cut_all()
                    return
                writer.write(chunk)
                await writer.drain()
            writer.write_eof()


@asynccontextmanager
async def proxying(target: int) -> AsyncIterator[Proxy]:
    """A proxy to 127.0.0.1:target on a free port."""
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut_all()
        await server.wait_closed()
