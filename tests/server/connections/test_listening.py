"""Listening sockets where the process may open no more files."""

import asyncio
import os
import resource
import socket

import pytest

from edgeflock.server.connections.listening import bind


async def test_a_lack_of_file_descriptors_is_a_line_and_connections_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    accepted = asyncio.Event()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set()
            transport.close()

    async with bind(Accepting, "127.0.0.1", 0) as port:
        with socket.socket() as caller:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)
            last = os.dup(caller.fileno())  # the lowest that was free
            resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, limit[1]))
            try:
                caller.connect(("127.0.0.1", port))
                while not caplog.records:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.01)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limit)
                os.close(last)
            await asyncio.wait_for(accepted.wait(), 60)
    (record,) = caplog.records
    assert record.getMessage().startswith("socket.accept() out of system resource")
