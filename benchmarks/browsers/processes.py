"""The server, devices in Python, and what is measured at processes and sockets."""

import asyncio
import json
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.browsers.seat import MNIST
from benchmarks.live import edgeflock, process

SETTINGS = (
    "server.port=0", "server.browsers=true", "model.module=edgeflock.client.zoo:PaperMLP",
    f"model.data=npz:{MNIST}",
)  # fmt: skip


@asynccontextmanager
async def serving(folder: Path, *settings: str) -> AsyncIterator[tuple[str, str]]:
    """A server; its URL, and a token for any number of devices."""
    options = ["--json"]
    for setting in (*SETTINGS, *settings, f"server.directory={folder / 'run'}"):
        options += ["--set", setting]
    log = folder / "server.log"
    async with edgeflock("server", *options, log=log) as started:
        assert started.stdout is not None
        if not (line := await started.stdout.readline()):
            raise SystemExit(log.read_text())
        yield json.loads(line)["url"], (await token(folder))


async def token(folder: Path) -> str:
    command = ("-m", "edgeflock", "token", "create", str(folder / "run"), "--reusable", "--json")
    async with process(sys.executable, *command, log=folder / "token.log") as started:
        text: str = json.loads((await started.communicate())[0])["token"]
        return text


@asynccontextmanager
async def native(folder: Path, url: str, token: str, name: str, part: str) -> AsyncIterator[Process]:
    """A device in Python."""
    identity, log = str(folder / f"{name}.json"), folder / f"{name}.log"
    async with edgeflock(
        "client", "join", url, token, "--name", name, "--identity", identity, log=log
    ) as joins:
        assert await joins.wait() == 0, log.read_text()
    options = ("--identity", identity, "--data", f"npz:{MNIST}{part}", "--backend", "onnx")
    async with edgeflock("client", *options, log=log) as started:
        yield started


def renderer(pid: int) -> psutil.Process:
    """The largest process of a browser that renders a page."""
    found = [child for child in psutil.Process(pid).children(recursive=True) if _renders(child)]
    return max(found, key=lambda child: int(child.memory_full_info().uss))


def _renders(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "--type=renderer" in process.cmdline()
    return False


def seconds_of(process: psutil.Process) -> float:
    """The seconds of a core that it has taken so far."""
    return float(sum(process.cpu_times()[:2]))


@asynccontextmanager
async def counting(port: int) -> AsyncIterator[tuple[int, dict[str, int]]]:
    """A port that passes all on to `port`, and the bytes that went through it."""
    counts = {"up": 0, "down": 0}

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        with suppress(ConnectionError):
            while octets := await reader.read(1 << 16):
                counts[way] += len(octets)
                writer.write(octets)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, back, "up"), pump(onward, writer, "down"))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], counts
