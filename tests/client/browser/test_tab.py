"""A device in a tab of a real Chromium and a real Firefox, in its worker, with its storage."""

import base64
import gzip
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgeflock as ef
from edgeflock.server.web import libraries
from edgeflock.shared.data.datasets import load
from tests.browser import Tab, browsing, needs_chromium
from tests.client.browser.node import MODULES
from tests.firefox import FirefoxTab, firefox, needs_firefox

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (MODULES / "vendor").is_dir(), reason="npm ci --prefix client/browser"),
]

AnyTab = Tab | FirefoxTab
Opens = Callable[[Path], AbstractAsyncContextManager[AnyTab]]

in_each_browser = pytest.mark.parametrize(
    "opens",
    [
        pytest.param(browsing, marks=needs_chromium, id="chromium"),
        pytest.param(firefox, marks=needs_firefox, id="firefox"),
    ],
)

SERVES: dict[str, Any] = {"server": {"browsers": True}}

SCRIPT = """
(async () => {
    const {WorkerDevice, identityOf} = await import("/train/device/index.js");
    const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
    const data = {x: new Float32Array(bytes("%s")), y: new Int32Array(bytes("%s")), shape: [1, 8, 8]};
    window.events = [];
    window.ticks = 0;
    setInterval(() => ticks++, 10);
    window.device = new WorkerDevice({
        server: location.origin, token: %s, data, onEvent: (event) => events.push(event),
    });
    window.ended = device.start();
    window.identity = () => identityOf(location.origin);
})()
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries of `npm ci` in place of those of `edgeflock browsers install`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, library in libraries.LIBRARIES.items():
        shutil.copytree(MODULES / "vendor" / name, library.path)
    (wasm,) = libraries.LIBRARIES["onnxruntime-web"].path.glob("*.wasm")
    wasm.with_name(f"{wasm.name}.gz").write_bytes(gzip.compress(wasm.read_bytes(), 1))
    wasm.unlink()


async def begin(tab: AnyTab, url: str, token: str) -> None:
    """Open the page of training, and start a device on the digits in it."""
    data = load("digits:", "train")
    assert isinstance(data.x, np.ndarray)
    parts = (data.x.astype("<f4"), data.y.astype("<i4"))
    await tab.go(f"{url}/train")
    await tab.until("document.readyState === 'complete' && location.pathname === '/train'")
    x, y = (base64.b64encode(part.tobytes()).decode() for part in parts)
    await tab.run(SCRIPT % (x, y, json.dumps(token)))


async def last(tab: AnyTab, kind: str) -> dict[str, Any]:
    """The last event of this kind."""
    return dict(await tab.run(f"events.findLast((event) => event.kind === '{kind}')"))


@in_each_browser
async def test_a_tab_trains_and_comes_back(tmp_path: Path, installed: None, opens: Opens) -> None:
    """It is reloaded while it trains; the same key lets it in, and no update counts twice."""
    model = "edgeflock.client.zoo:DigitsCNN"
    async with ef.Server(
        model, directory=tmp_path / "run", evaluate="digits:", updates=40, **SERVES
    ) as server:
        async with opens(tmp_path / "browser") as tab:
            await begin(tab, server.url, server.token)
            await tab.until("events.some(({kind, updates}) => kind === 'step' && updates >= 5)")
            name = (await tab.run("identity()"))["name"]
            assert name.startswith("browser-")
            assert await tab.run("ticks > 0"), "the page answers while the worker trains"

            await begin(tab, server.url, "")
            await tab.until("events.some(({kind}) => kind === 'step')")
            assert (await tab.run("identity()"))["name"] == name
            await tab.run("device.pause('hidden')")
            await tab.until("events.findLast(({kind}) => kind === 'state').state === 'paused'")
            await tab.run("device.resume()")
            await tab.until("events.some(({kind}) => kind === 'ended')")
            ended = await last(tab, "ended")
            assert (ended["why"], ended["reason"]) == ("over", "the run is over: it has its 40 updates")
            assert all(url.startswith(("http://127", "ws://127", "about:", "data:")) for url in tab.asked), (
                tab.asked
            )
        assert (await server.until()).version == 40


@in_each_browser
async def test_a_stop_is_immediate(tmp_path: Path, installed: None, opens: Opens) -> None:
    model = "edgeflock.client.zoo:DigitsCNN"
    async with ef.Server(
        model, directory=tmp_path / "run", evaluate="digits:", updates=10_000, **SERVES
    ) as server:
        async with opens(tmp_path / "browser") as tab:
            await begin(tab, server.url, server.token)
            await tab.until("events.some(({kind}) => kind === 'step')")
            await tab.run("device.stop()")
            count = "events.length"
            assert (await last(tab, "ended"))["why"] == "stopped"
            before = await tab.run(count)
            await tab.run("new Promise((resolve) => setTimeout(resolve, 1500))")
            assert await tab.run(count) == before, "nothing comes after it"
