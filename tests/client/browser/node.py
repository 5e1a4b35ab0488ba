"""Devices in node: client/browser as a browser runs it, but for its WebSocket and its storage."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.shared.data.datasets import load

MODULES = Path(__file__).parents[3] / "client" / "browser"
NODE = shutil.which("node")

needs_node = pytest.mark.skipif(
    NODE is None or not (MODULES / "vendor").is_dir() or not (MODULES / "node_modules" / "ws").is_dir(),
    reason="node or its packages are not installed: npm ci --prefix client/browser",
)


class NodeDevice:
    """A device in a process of node."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []

    async def until(self, kind: str, **fields: object) -> dict[str, Any]:
        """The next event of this kind with these fields."""
        async for event in self._told():
            if event["kind"] == kind and fields.items() <= event.items():
                return event
        raise AssertionError(f"it ended without {kind} {fields}: {self.events[-5:]}")

    async def ended(self) -> dict[str, Any]:
        """How it ended: why, and the reason in one line."""
        return await self.until("ended")

    async def do(self, command: str) -> None:
        """Stop, pause or resume it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n".encode())
        await self.process.stdin.drain()

    async def _told(self) -> AsyncIterator[dict[str, Any]]:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            event: dict[str, Any] = json.loads(line)
            self.events.append(event)
            yield event


@asynccontextmanager
async def node_device(directory: Path, server: str, **options: object) -> AsyncIterator[NodeDevice]:
    """A device on the digits. Its storage is a file of `directory`. `options` are those of a Device."""
    assert NODE is not None, "marked with needs_node"
    directory.mkdir(exist_ok=True)
    write_digits(directory)
    script = Path(__file__).with_name("device.mjs")
    process = await asyncio.create_subprocess_exec(
        NODE, str(script), str(MODULES), str(directory), server, json.dumps(options),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20,
    )  # fmt: skip
    try:
        yield NodeDevice(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def write_digits(directory: Path) -> None:
    """The digits as flat files, once."""
    if not (directory / "x").exists():
        data = load("digits:", "train")
        assert isinstance(data.x, np.ndarray)
        (directory / "x").write_bytes(data.x.astype("<f4").tobytes())
        (directory / "y").write_bytes(data.y.astype("<i4").tobytes())
