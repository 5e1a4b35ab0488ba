"""A headless Firefox for a test, spoken to by WebDriver BiDi, which Firefox serves itself."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.browser import SECONDS

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")

needs_firefox = pytest.mark.skipif(FIREFOX is None, reason="firefox is not installed")


class FirefoxTab:
    """One page, as tests.browser.Tab. Use `firefox`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._context = ""
        self.errors: list[str] = []
        """What the page's console was told is wrong, and what its scripts raised."""
        self.asked: list[str] = []
        """The URL of everything that it loaded."""

    async def begin(self) -> None:
        await self.call("session.new", capabilities={})
        await self.call("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self._context = (await self.call("browsingContext.getTree"))["contexts"][0]["context"]

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command."""
        reply = await self._reply(method, **parameters)
        assert reply["type"] == "success", reply
        result: dict[str, Any] = reply["result"]
        return result

    async def go(self, url: str) -> None:
        await self.call("browsingContext.navigate", context=self._context, url=url, wait="none")

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        done = await self.call("script.evaluate", **self._evaluation(script))
        assert done["type"] == "success", done
        return json.loads(done["result"]["value"])

    async def until(self, script: str) -> Any:
        """What the expression comes to, once that is true."""
        async with asyncio.timeout(SECONDS):
            while True:
                reply = await self._reply("script.evaluate", **self._evaluation(script))
                result = reply.get("result", {})  # none: the page is left before it has a value
                if result.get("type") == "success" and (value := json.loads(result["result"]["value"])):
                    return value
                await asyncio.sleep(0.05)

    def _evaluation(self, script: str) -> dict[str, Any]:
        expression = f"(async () => JSON.stringify((await ({script})) ?? null))()"
        return {"expression": expression, "target": {"context": self._context}, "awaitPromise": True}

    async def _reply(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message: dict[str, Any] = await self._socket.receive_json()
            match message.get("method"):
                case "log.entryAdded" if message["params"]["level"] == "error":
                    self.errors.append(str(message["params"]["text"]))
                case "network.beforeRequestSent":
                    self.asked.append(message["params"]["request"]["url"])
            if message.get("id") == self._number:
                return message


@asynccontextmanager
async def firefox(folder: Path) -> AsyncIterator[FirefoxTab]:
    """A page of a Firefox that keeps what it keeps in `folder`."""
    assert FIREFOX is not None, "marked with needs_firefox"
    folder.mkdir()
    process = await asyncio.create_subprocess_exec(
        FIREFOX, "--headless", "--no-remote", "--profile", str(folder), "--remote-debugging-port=0",
        env={**os.environ, "HOME": str(folder), "TZ": "UTC"},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    rest = None
    try:
        async with asyncio.timeout(SECONDS):
            while not (reported := re.search(rb"BiDi listening on (\S+)", await process.stderr.readline())):
                assert process.returncode is None
        rest = asyncio.create_task(process.stderr.read())
        async with aiohttp.ClientSession() as http:
            async with http.ws_connect(f"{reported[1].decode()}/session", max_msg_size=0) as socket:
                tab = FirefoxTab(socket)
                await tab.begin()
                yield tab
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if rest is not None:
            await rest
