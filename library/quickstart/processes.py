"""The processes of a quickstart: a server and its clients, each with a log."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edgeflock.shared.errors import EdgeflockError

_EXIT_SECONDS = 30.0
"""Seconds for clients to leave after the end of the run."""


async def start(command: str, settings: Sequence[str], *flags: str, log: Path) -> asyncio.subprocess.Process:
    """Start an edgeflock command with `settings` as --set and output to `log`. A server's stdout is piped."""
    # Each has one thread, because processes that all use every core slow each other down.
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
    """Return a server's URL as soon as it listens. Raises EdgeflockError if it ends instead."""
    assert server.stdout is not None
    line = await server.stdout.readline()
    if not line:
        await server.wait()
        raise EdgeflockError(f"the server did not start: {tail_of(directory / 'server.log')}")
    return str(json.loads(line)["url"])


def tail_of(log: Path) -> str:
    """Return the last line of a log, which has the reason of a process's end."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("edgeflock: ") if lines else f"see {log}"


async def wait_for_exit(clients: list[asyncio.subprocess.Process]) -> None:
    """Wait a limited time for clients of a finished run to leave, and report how they ended."""
    leaving = [asyncio.create_task(client.wait()) for client in clients]
    _, late = await asyncio.wait(leaving, timeout=_EXIT_SECONDS)
    for one in late:
        one.cancel()


async def end(processes: list[asyncio.subprocess.Process]) -> None:
    """Stop the clients, then the server. Kill processes that do not stop."""
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
