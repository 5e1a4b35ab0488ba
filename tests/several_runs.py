"""A server of several runs in a process of its own, and requests to it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeflock.shared.errors import EdgeflockError
from edgeflock.tui.sources import FeedClient


@dataclass
class Hosting:
    """The server."""

    folder: Path
    url: str
    process: asyncio.subprocess.Process

    @property
    def token(self) -> str:
        return (self.folder / "admin-token").read_text().strip()

    def address(self, name: str) -> str:
        """The URL of a run."""
        return f"{self.url}/v1/runs/{name}"

    def client(self, name: str = "", token: str | None = None) -> FeedClient:
        """An operator of the server, or of a run by its name."""
        return FeedClient(self.address(name) if name else self.url, self.token if token is None else token)

    async def rows(self, token: str | None = None) -> dict[str, dict[str, Any]]:
        """The list of runs, by name."""
        found = await self.client(token=token).request("GET", "/v1/runs")
        return {row["name"]: row for row in found["runs"]}

    async def until(self, name: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The row of a run once it is so."""
        async with asyncio.timeout(300):
            while not is_so(row := (await self.rows()).get(name, {"state": "absent"})):
                await asyncio.sleep(0.1)
        return row

    async def until_state(self, name: str, state: str) -> dict[str, Any]:
        return await self.until(name, lambda row: row["state"] == state)

    async def until_reason(self, name: str, words: str) -> dict[str, Any]:
        return await self.until(name, lambda row: words in row.get("reason", ""))

    def child(self, name: str) -> int:
        """The process of a run; 0: it has none."""
        return next((pid for pid, text in self.children().items() if f"/{name}.toml" in text), 0)

    def children(self) -> dict[int, str]:
        """All processes of its runs: identifier -> command line."""
        return processes(str(self.folder))


def processes(text: str) -> dict[int, str]:
    """Servers of runs whose command line has `text`: identifier -> command line."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                arguments = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if text in arguments and "server.directory=" in arguments:
                found[int(folder.name)] = arguments
    return found


@asynccontextmanager
async def several_runs(folder: Path, *settings: str, **files: str) -> AsyncIterator[Hosting]:
    """Host the runs of `folder`, which gets NAME.toml with the text of each of `files`."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text)
    options = [part for setting in ("server.port=0", *settings) for part in ("--set", setting)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "edgeflock", "server", str(folder), "--json", *options),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None, "a pipe"
    try:
        while not (line := await process.stdout.readline()).startswith(b'{"url"'):
            if not line:
                raise EdgeflockError("the server has ended")
        draining = asyncio.create_task(_drain(process.stdout))
        yield Hosting(folder.resolve(), json.loads(line)["url"], process)
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(120):
            await process.wait()
            await draining
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(1 << 16):
        pass
