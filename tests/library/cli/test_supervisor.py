"""What systemd hears of a process that it started, by a socket of the test's own."""

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edgeflock.cli.supervisor import LastLine, notify, supervised, watchdog_seconds
from tests.answering import answering
from tests.library.command_line import edgeflock


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The supervisor's end."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as line:
        line.bind(str(tmp_path / "notify"))
        line.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield line


async def test_ready_alive_and_stopping(heard: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "2000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    values = iter(range(1000))
    loop = asyncio.get_running_loop()
    async with supervised(lambda: f"version {next(values)}"):
        assert await loop.sock_recv(heard, 4096) == b"READY=1\nSTATUS=version 0"
        assert await loop.sock_recv(heard, 4096) == b"WATCHDOG=1\nSTATUS=version 1"
        assert await loop.sock_recv(heard, 4096) == b"WATCHDOG=1\nSTATUS=version 2"
    while (text := await loop.sock_recv(heard, 4096)) != b"STOPPING=1":
        assert text.startswith(b"WATCHDOG=1\n")


async def test_the_last_line_of_the_log_is_the_status(heard: socket.socket) -> None:
    handler = LastLine(os.environ)
    handler.handle(logging.makeLogRecord({"msg": "connected\nREADY=1", "levelno": logging.INFO}))
    assert heard.recv(4096) == b"STATUS=connected READY=1"


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_how_often(environ: dict[str, str], seconds: float | None) -> None:
    assert watchdog_seconds(environ, 7) == seconds


@pytest.mark.parametrize("path", ["", "relative", "/nowhere/notify", "@edgeflock-nobody-listens"])
def test_nobody_to_tell(path: str) -> None:
    notify({"NOTIFY_SOCKET": path}, READY=1)


async def test_a_client_is_ready_before_its_server_is(heard: socket.socket) -> None:
    """Or systemd would give up on a device whose server is away."""
    async with answering(401) as port:
        words = ("client", "--server", f"http://127.0.0.1:{port}", "--data", "digits:")
        done = await asyncio.to_thread(edgeflock, *words)
    assert done.returncode == 3, done.stderr
    assert heard.recv(4096) == b"READY=1"
    assert heard.recv(4096) == b"STOPPING=1"
