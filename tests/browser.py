"""A headless Chromium for a test, spoken to by its DevTools protocol."""

import asyncio
import base64
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

SECONDS = 120.0
"""For a page to come to what a test waits for, on a busy machine."""


class Tab:
    """One page. Use `browsing`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []
        """What the page's console was told is wrong, and what its scripts raised."""
        self.asked: list[str] = []
        """The URL of everything that it loaded."""
        self.referrers: list[str] = []
        """What these requests said of the page that they came from."""
        self.workers: list[str] = []
        """The sessions of its workers, once `Target.setAutoAttach` was called."""

    async def call(self, method: str, *, session: str = "", **parameters: Any) -> dict[str, Any]:
        """The result of a DevTools command, in the page or in a worker."""
        reply = await self._reply(method, session, **parameters)
        assert "error" not in reply, reply
        result: dict[str, Any] = reply["result"]
        return result

    async def go(self, url: str) -> None:
        await self.call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        made = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in made, made["exceptionDetails"]
        return made["result"].get("value")

    async def until(self, script: str) -> Any:
        """What the expression comes to, once that is true."""
        async with asyncio.timeout(SECONDS):
            while not (value := await self.tried(script)):
                await asyncio.sleep(0.05)
        return value

    async def text(self) -> str:
        """All that is to be read on the page."""
        return str(await self.run("document.body.innerText"))

    async def looks(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        """The size of the page, and what the user prefers."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def hang_up(self) -> None:
        """Leave the page to itself."""
        await self._socket.close()

    async def shoot(self, path: Path) -> None:
        """A screenshot, as PNG."""
        made = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(made["data"]))

    async def tried(self, script: str) -> Any:
        """Its value; None where it raises, and where the page is left before it has a value."""
        reply = await self._reply("Runtime.evaluate", expression=script, returnByValue=True)
        if "error" in reply:
            assert "navigated" in reply["error"]["message"], reply
            return None
        result = reply["result"]
        return None if "exceptionDetails" in result else result["result"].get("value")

    async def _reply(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """What the browser answers to a DevTools command, an error too."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        await self._socket.send_json(command | ({"sessionId": session} if session else {}))
        while True:
            message: dict[str, Any] = await self._socket.receive_json()
            self._note(message)
            if message.get("id") == self._number:
                return message

    def _note(self, reported: dict[str, Any]) -> None:
        parameters = reported.get("params", {})
        match reported.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(parameters["exceptionDetails"]))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.errors.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.asked.append(parameters["request"]["url"])
            case "Network.requestWillBeSentExtraInfo":
                headers = {name.lower(): value for name, value in parameters["headers"].items()}
                self.referrers.append(headers.get("referer", ""))
            case "Target.attachedToTarget" if parameters["targetInfo"]["type"] == "worker":
                self.workers.append(parameters["sessionId"])
            case "Network.webSocketCreated":
                self.asked.append(parameters["url"])


class Browser:
    """A running browser. Use `browser`."""

    def __init__(self, http: aiohttp.ClientSession, url: str, pid: int) -> None:
        self._http, self._url = http, url
        self.pid = pid

    async def open(self) -> Tab:
        """A new tab with an empty page."""
        async with self._http.put(f"{self._url}/json/new?about:blank") as answer:
            return await self._attach(await answer.json())

    async def first(self) -> Tab:
        """The tab that it has opened by itself."""
        async with self._http.get(f"{self._url}/json/list") as answer:
            return await self._attach(next(one for one in await answer.json() if one["type"] == "page"))

    async def _attach(self, target: dict[str, Any]) -> Tab:
        tab = Tab(await self._http.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0))
        for domain in ("Page", "Runtime", "Log", "Network"):
            await tab.call(f"{domain}.enable")
        return tab


@asynccontextmanager
async def browsing(folder: Path, *arguments: str, trusting: bool = True) -> AsyncIterator[Tab]:
    """A page of a browser that keeps what it keeps in `folder`. A trusting one takes any certificate."""
    async with browser(folder, *arguments, trusting=trusting) as running:
        yield await running.first()


@asynccontextmanager
async def browser(folder: Path, *arguments: str, trusting: bool = True) -> AsyncIterator[Browser]:
    """A browser for several pages, with more `arguments` of its command line."""
    assert CHROMIUM is not None, "marked with needs_chromium"
    folder.mkdir()
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-extensions",
        *(["--ignore-certificate-errors"] if trusting else []),
        "--hide-scrollbars", "--remote-debugging-port=0", "--lang=en-US", *arguments,
        f"--user-data-dir={folder}", "about:blank",
        env={**os.environ, "HOME": str(folder), "TZ": "UTC"},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        reported = folder / "DevToolsActivePort"
        async with asyncio.timeout(SECONDS):
            while not (reported.exists() and len(lines := reported.read_text().splitlines()) == 2):
                await asyncio.sleep(0.05)
        async with aiohttp.ClientSession() as http:
            yield Browser(http, f"http://127.0.0.1:{lines[0]}", process.pid)
            async with http.ws_connect(f"ws://127.0.0.1:{lines[0]}{lines[1]}") as socket:
                await socket.send_json({"id": 1, "method": "Browser.close"})
                await socket.receive()
        async with asyncio.timeout(SECONDS):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
