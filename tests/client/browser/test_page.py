"""The training page in a real browser, at a real server that trains a real model."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import edgeflock as ef
from edgeflock.server.http.keys import HOST
from edgeflock.server.roster import Device
from edgeflock.server.web.libraries import LIBRARIES
from edgeflock.shared.identity import Token, training_page
from tests.browser import Tab, browsing, needs_chromium
from tests.client.browser.node import MODULES

pytestmark = [
    needs_chromium,
    pytest.mark.skipif(
        not (MODULES / "vendor").is_dir(), reason="no libraries: npm ci --prefix client/browser"
    ),
]

EXAMPLE = Path(__file__).parents[3] / "examples" / "browser"

MODEL = "edgeflock.client.zoo:DigitsCNN"

STATE = "document.getElementById('state').innerText"
KEPT = """
(async () => {
    const name = (await indexedDB.databases())[0].name;
    const opening = indexedDB.open(name);
    await new Promise((resolve) => (opening.onsuccess = resolve));
    const database = opening.result;
    const values = database.transaction("values").objectStore("values").getAll();
    await new Promise((resolve) => (values.onsuccess = resolve));
    const stored = [values.result, {...localStorage}, {...sessionStorage}, document.cookie];
    const shown = [location.href, history.state, document.documentElement.outerHTML];
    return JSON.stringify([...stored, ...shown]);
})()
"""
"""All that the page has stored, and all that it shows."""

TRAINS = f"{STATE} === 'Training'"


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries that npm has installed, as `edgeflock browsers install` would have."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, library in LIBRARIES.items():
        shutil.copytree(MODULES / "vendor" / name, library.path)


@asynccontextmanager
async def visiting(folder: Path, script: str = "", **settings: Any) -> AsyncIterator[tuple[ef.Server, Tab]]:
    """A server, and a browser that has opened its invitation and may start. `script` runs before the page."""
    tables = {"server": {"browsers": True}, **settings}
    async with (
        ef.Server(MODEL, directory=folder / "run", evaluate="digits:", **tables) as server,
        browsing(folder / "browser") as tab,
    ):
        await tab.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        await tab.looks(390, 844)
        await tab.go(training_page(server.url, server.token))
        await tab.until("document.getElementById('start')?.disabled === false")
        yield server, tab


async def press(tab: Tab, title: str) -> None:
    called = f"(one) => !one.hidden && one.innerText.trim() === {json.dumps(title)}"
    button = f"[...document.querySelectorAll('button')].find({called})"
    await tab.until(f"!!{button}")
    await tab.run(f"{button}.click()")


async def draw(tab: Tab, points: list[tuple[float, float]]) -> None:
    """A stroke on the canvas, by the pointer, through points from 0 to 1."""
    await tab.run("document.querySelector('canvas').scrollIntoView({ block: 'center' })")
    script = "JSON.stringify(document.querySelector('canvas').getBoundingClientRect())"
    box = json.loads(await tab.run(script))
    for number, (x, y) in enumerate(points):
        place = {"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]}
        kind = "mouseMoved" if number else "mousePressed"
        await tab.call("Input.dispatchMouseEvent", type=kind, button="left", buttons=1, clickCount=1, **place)
    await tab.call("Input.dispatchMouseEvent", type="mouseReleased", button="left", **place)


async def give_drawings(tab: Tab) -> None:
    """Give the page five drawings of a one."""
    for number in range(5):
        await press(tab, "1")
        await draw(tab, [(0.5 + number / 100, 0.1), (0.5, 0.5), (0.5, 0.9)])
        await press(tab, "Add")


async def start(tab: Tab) -> None:
    await press(tab, "Start")
    await tab.until("!!document.querySelector('canvas')")


async def reached(server: ef.Server, version: int) -> None:
    async with asyncio.timeout(300):
        while server.version < version:
            await asyncio.sleep(0.05)


def devices(server: ef.Server) -> list[Device]:
    """Those that the server knows."""
    return list(server._active.app[HOST].registry.devices.values())


async def left(server: ef.Server) -> None:
    """Wait until no device is connected."""
    async with asyncio.timeout(60):
        while any(device.connection.is_connected for device in devices(server)):
            await asyncio.sleep(0.05)


def elsewhere(server: ef.Server, tab: Tab) -> list[str]:
    """What the page asked of others, or with its token in the address."""
    own = server.url, server.url.replace("http", "ws", 1)
    return [url for url in tab.asked if not url.startswith(own) or "ef1." in url]


@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
async def test_a_visitor_draws_and_the_model_learns(tmp_path: Path) -> None:
    async with visiting(tmp_path) as (server, tab):
        assert await tab.run("location.href") == f"{server.url}/train", "the token has left the address bar"
        assert "Your data stay here" in await tab.text()
        await start(tab)
        assert "The model DigitsCNN" in await tab.text()
        await press(tab, "Add")
        assert "Nothing is drawn yet" in await tab.text()
        await give_drawings(tab)
        assert server.version == 0 or await tab.run(TRAINS)
        await reached(server, 5)
        await tab.until("Number(document.querySelector('#meter dd').innerText) >= 5")
        meter = await tab.run("document.getElementById('meter').innerText")
        for name in ("Steps", "Updates", "Sent", "Received", "Loss"):
            assert name in meter
        assert await tab.run("document.documentElement.scrollWidth") <= 390
        await press(tab, "Stop")
        assert "Stopped" in await tab.run(STATE)
        await left(server)
        (device,) = devices(server)
        assert device.name.startswith("browser-")
        assert device.connection.leave_reason is not None
        before = server.version
        await press(tab, "Start again")
        await reached(server, before + 2)  # on the drawings that it has
        await press(tab, "Stop")
        assert tab.errors == [], "neither its policy nor a script complains"
        assert elsewhere(server, tab) == []
        assert "browser-" in (kept := await tab.run(KEPT))
        assert server.token not in kept, "the page keeps the key alone"
        assert set(tab.referrers) == {""}


@pytest.mark.usefixtures("libraries")
async def test_it_rests_while_nobody_looks_and_on_a_low_battery(tmp_path: Path) -> None:
    script = """
        window.battery = Object.assign(new EventTarget(), { level: 0.9, charging: false });
        navigator.getBattery = async () => window.battery;
        const connection = Object.assign(new EventTarget(), { saveData: true });
        Object.defineProperty(navigator, 'connection', { value: connection });
        Object.defineProperty(document, 'hidden', { get: () => Boolean(window.away) });
    """
    async with visiting(tmp_path, script) as (server, tab):
        await start(tab)
        await give_drawings(tab)
        await tab.until(f"{STATE}.includes('data saver')")
        assert server.version == 0, "it has rested since it began"
        await tab.run("document.getElementById('metered').click()")
        await reached(server, 2)
        changes = {
            "the page is hidden": (
                "window.away = true; document.dispatchEvent(new Event('visibilitychange'))",
                "window.away = false; document.dispatchEvent(new Event('visibilitychange'))",
            ),
            "battery 10%": (
                "battery.level = 0.1; battery.dispatchEvent(new Event('levelchange'))",
                "battery.charging = true; battery.dispatchEvent(new Event('chargingchange'))",
            ),
        }
        for reason, (rests, goes_on) in changes.items():
            await tab.run(rests)
            await tab.until(f"{STATE}.includes({json.dumps(reason)})")
            (device,) = devices(server)
            async with asyncio.timeout(60):  # its operator is told, too
                while device.owner_pause is None:
                    await asyncio.sleep(0.05)
            assert reason in device.owner_pause
            paused = server.version
            await tab.run(goes_on)
            await reached(server, paused + 2)
            await tab.until(TRAINS)


@pytest.mark.usefixtures("libraries")
async def test_a_browser_is_the_same_device_until_it_is_forgotten(tmp_path: Path) -> None:
    async with visiting(tmp_path) as (server, tab):
        await start(tab)
        await press(tab, "Stop")
        await left(server)
        await tab.go("about:blank")
        await tab.go(f"{server.url}/train")
        await tab.until("document.getElementById('start')?.disabled === false")
        (device,) = devices(server)
        assert device.name in await tab.run("document.getElementById('identity').textContent")
        await start(tab)
        assert [one.name for one in devices(server)] == [device.name], "without a token"
        await press(tab, "Stop")
        await tab.run("document.getElementById('more').open = true")
        await press(tab, "Forget this device")
        await tab.until(f"{STATE}.startsWith('You need an invitation')")
        assert await tab.run("document.getElementById('start').disabled")
        assert [one.name for one in devices(server)] == [device.name]


@pytest.mark.usefixtures("libraries")
async def test_an_invitation_that_is_no_more_is_told(tmp_path: Path) -> None:
    async with visiting(tmp_path) as (server, tab):
        await tab.go("about:blank")
        await tab.go(training_page(server.url, Token.new().text))
        await tab.until("document.getElementById('start')?.disabled === false")
        await press(tab, "Start")
        await tab.until(f"{STATE}.startsWith('The server does not let')")
        trouble = await tab.run("document.getElementById('trouble').innerText")
        assert "does not know this token" in trouble
        assert devices(server) == []


async def test_without_its_libraries_the_page_says_what_to_run(tmp_path: Path) -> None:
    server = ef.Server(MODEL, directory=tmp_path / "run", evaluate="digits:", server={"browsers": True})
    async with server, browsing(tmp_path / "browser") as tab:
        await tab.go(training_page(server.url, server.token))
        await tab.until(f"{STATE}.includes('edgeflock browsers install')")
        assert await tab.run("document.getElementById('start').disabled")


@pytest.mark.usefixtures("libraries")
async def test_by_keyboard_and_for_a_screen_reader(tmp_path: Path) -> None:
    async with visiting(tmp_path) as (server, tab):
        await tab.run("document.getElementById('start').focus()")
        for kind in ("keyDown", "keyUp"):
            await tab.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key="Enter",
                code="Enter",
                text="\r",
                windowsVirtualKeyCode=13,
            )
        await tab.until("!!document.querySelector('canvas')")
        assert await tab.run("document.activeElement.id") == "stop"
        nodes = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
        for node in nodes:
            if node.get("role", {}).get("value") in ("button", "checkbox", "image", "combobox", "textbox"):
                assert node["name"]["value"], node
        states = await tab.run("[...document.querySelectorAll('[role=status], [role=alert]')].length")
        assert states >= 3
        assert server.version == 0


@asynccontextmanager
async def embedding() -> AsyncIterator[str]:
    """The URL of a site of somebody else's, with the example's page and the package as npm installs it."""
    app = web.Application()
    app.router.add_static("/node_modules/edgeflock", MODULES)
    app.router.add_static("/", EXAMPLE)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_page_of_somebody_elses_trains_by_forty_lines(tmp_path: Path) -> None:
    """It is of another origin, which the operator has listed."""
    assert len((EXAMPLE / "index.html").read_text().splitlines()) <= 40
    async with embedding() as site:
        listed = {"origins": [site]}
        server = ef.Server(MODEL, directory=tmp_path / "run", evaluate="digits:", server=listed)
        async with server, browsing(tmp_path / "browser") as tab:
            await tab.looks(390, 844)
            await tab.go(f"{site}/index.html#server={server.url}&token={server.token}")
            await tab.until("document.querySelectorAll('#digits button').length === 10")
            for number in range(5):
                await draw(tab, [(0.5 + number / 100, 0.1), (0.5, 0.5), (0.5, 0.9)])
                await press(tab, "1")
            await press(tab, "Train")
            await reached(server, 5)
            await press(tab, "Stop")
            await left(server)
            assert tab.errors == []
