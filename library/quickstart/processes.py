"""The processes of a quickstart: a server and its clients, each with a log."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edgeflock.shared.errors import EdgeflockError

_LEAVING = 30.0
"""Seconds that clients of a run that is over may take to leave."""


async def start(command: str, settings: Sequence[str], *flags: str, log: Path) -> asyncio.subprocess.Process:
    """Start an edgeflock command with `settings` as --set. It writes to `log`; a server's stdout is piped."""
    # One thread each: processes that all use every core only get in each other's way.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with log.open("wb") as stderr:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "edgeflock",
            command,
            *flags,
            *(part for setting in settings for part in ("--set", setting)),
            stdout=asyncio.subprocess.PIPE if command == "server" else stderr,
            stderr=stderr,
            stdin=asyncio.subprocess.DEVNULL,
            env=environment,
        )


async def url_of(server: asyncio.subprocess.Process, directory: Path) -> str:
    """Where a server listens, once it does. Raises EdgeflockError if it ends instead."""
    assert server.stdout is not None
    line = await server.stdout.readline()
    if not line:
        await server.wait()
        raise EdgeflockError(f"the server did not start: {tail_of(directory / 'server.log')}")
    return str(json.loads(line)["url"])


def tail_of(log: Path) -> str:
    """The last line of a log, which says why a process ended."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("edgeflock: ") if lines else f"see {log}"


async def left(clients: list[asyncio.subprocess.Process]) -> None:
    """Let those whose run is over leave by themselves, and say what they did; not for ever."""
    leaving = [asyncio.create_task(client.wait()) for client in clients]
    _, late = await asyncio.wait(leaving, timeout=_LEAVING)
    for one in late:
        one.cancel()


async def end(processes: list[asyncio.subprocess.Process]) -> None:
    """Stop the clients, then the server; kill what does not stop."""
    for process in reversed(processes):
        if process.returncode is None:
            process.terminate()
    for process in processes:
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
