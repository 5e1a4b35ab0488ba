"""A tab that trains, dies, and comes back to its storage."""

import asyncio
import base64
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from edgeflock.shared.data.datasets import load
from tests.browser import Browser, Tab

MNIST = Path(os.environ.get("EDGEFLOCK_DATA", ".")).resolve() / "mnist.npz"

SCRIPT = """
(async () => {
    const {WorkerDevice} = await import("/train/device/index.js");
    const octets = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const data = {
        x: Float32Array.from(octets("%(x)s"), (pixel) => pixel / 255),
        y: Int32Array.from(octets("%(y)s")), shape: [1, 28, 28],
    };
    window.reported = {updates: 0, seconds: [], state: "", ended: null};
    const onEvent = (event) => {
        if (event.kind === "state") reported.state = event.state;
        if (event.kind === "ended") reported.ended = `${event.why}: ${event.reason}`;
        if (event.kind === "step") {
            reported.updates = event.updates;
            reported.seconds.push(event.seconds);
            if (reported.seconds.length > 500) reported.seconds.shift();
        }
    };
    window.device = new WorkerDevice({
        server: location.origin, token: "%(token)s", storage: "%(storage)s", data, onEvent,
    });
    device.start();
})()
"""

UNDER_WAY = """
new Promise((resolve) => {
    const opening = indexedDB.open("%(storage)s", 1);
    opening.onupgradeneeded = () => opening.transaction.abort();
    opening.onerror = () => resolve(null);
    opening.onsuccess = () => {
        const read = (what) => new Promise((resolve) => {
            const store = opening.result.transaction("values").objectStore("values");
            const request = store.get(`${what} ${location.origin}/`);
            request.onsuccess = () => resolve(request.result);
        });
        Promise.all([read("identity"), read("update")]).then(([identity, saved]) => {
            opening.result.close();
            const text = (octets) => btoa(String.fromCharCode(...octets));
            resolve(identity && saved
                ? {
                    name: identity.name, sequence: saved.update.sequence, base: saved.update.base,
                    values: text(saved.update.values),
                }
                : null);
        });
    };
})
"""
"""The update that a storage has under way."""


class Seat:
    """A tab, the share of the data that it trains on, and the storage that it comes back to."""

    def __init__(self, running: Browser, url: str, token: str, part: str, number: int) -> None:
        self.running, self.url = running, url
        data = load(f"npz:{MNIST}{part}", "train")
        assert isinstance(data.x, np.ndarray)
        shares = (np.round(data.x * 255).astype("u1"), np.asarray(data.y).astype("u1"))
        x, y = (base64.b64encode(share.tobytes()).decode() for share in shares)
        self.given = {"x": x, "y": y, "token": token, "storage": f"tab-{number}"}
        self.tab: Tab | None = None
        self.receipts = 0
        """Those that it has seen before its last death."""

    async def sit(self) -> dict[str, Any] | None:
        """Open the page and train. Returns the update that its storage had under way."""
        if self.tab is None:
            self.tab = await self.running.open()
        await self.tab.go(f"{self.url}/train")
        await until(self.tab, "document.readyState === 'complete' && location.pathname === '/train'")
        found: dict[str, Any] | None = await self.tab.run(UNDER_WAY % self.given)
        await self.tab.run(SCRIPT % self.given)
        return found

    async def reported(self) -> dict[str, Any]:
        assert self.tab is not None
        found: dict[str, Any] = await self.tab.run("reported")
        return found

    async def die(self, how: str) -> None:
        """Close the tab, crash its process, or only have it leave its page."""
        assert self.tab is not None
        self.receipts += (await self.reported())["updates"]
        if how == "reload":
            return
        with suppress(Exception):  # it does not answer any more
            async with asyncio.timeout(5):
                await self.tab.call("Page.close" if how == "close" else "Page.crash")
        await self.tab.hang_up()
        self.tab = None


async def until(tab: Tab, script: str, seconds: float = 0.5) -> Any:
    """As Tab.until, but it asks rarely."""
    while not (value := await tab.tried(script)):  # noqa: ASYNC110
        await asyncio.sleep(seconds)
    return value
