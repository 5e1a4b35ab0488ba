"""Under which address a browser can train: a certificate of the server's own, none, or a page elsewhere."""

from pathlib import Path

import pytest

import edgeflock as ef
from edgeflock.server.identity import own_certificate
from edgeflock.shared.identity import training_page
from tests.browser import browsing, needs_chromium
from tests.client.browser.node import MODULES
from tests.client.browser.test_page import MODEL, STATE, devices, embedding, libraries, press

__all__ = ["libraries"]

pytestmark = [
    needs_chromium,
    pytest.mark.skipif(
        not (MODULES / "vendor").is_dir(), reason="no libraries: npm ci --prefix client/browser"
    ),
]


@pytest.mark.usefixtures("libraries")
async def test_a_visitor_continues_past_the_warning_of_the_servers_own_certificate(tmp_path: Path) -> None:
    own = own_certificate(tmp_path, "127.0.0.1")
    tls = {"browsers": True, "certificate": str(own.certificate), "key": str(own.key)}
    server = ef.Server(MODEL, directory=tmp_path / "run", evaluate="digits:", server=tls)
    async with server, browsing(tmp_path / "browser", trusting=False) as tab:
        await tab.go(training_page(server.url, server.token))
        await tab.until("document.body?.innerText.includes('ERR_CERT_AUTHORITY_INVALID')")
        for key in "thisisunsafe":  # as the page of the warning accepts it from the keyboard
            await tab.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
            await tab.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        await tab.until("document.getElementById('start')?.disabled === false")
        await press(tab, "Start")
        await tab.until("!!document.querySelector('canvas')")
        assert [one.connection.is_connected for one in devices(server)] == [True]


@pytest.mark.usefixtures("libraries")
async def test_over_plain_http_the_page_says_what_is_missing(tmp_path: Path) -> None:
    server = ef.Server(MODEL, directory=tmp_path / "run", evaluate="digits:", server={"browsers": True})
    rules = "--host-resolver-rules=MAP flock.test 127.0.0.1"
    async with server, browsing(tmp_path / "browser", rules) as tab:
        await tab.go(training_page(server.url.replace("127.0.0.1", "flock.test"), server.token))
        said = await tab.until(f"document.getElementById('state')?.classList.contains('bad') && {STATE}")
        assert "neither keys nor motion" in said
        assert "https://" in said
        assert "server.certificate" in said
        assert await tab.run("document.getElementById('start').disabled")


WITHOUT_A_SOCKET = """
(async () => {
    const {Device} = await import("/node_modules/edgeflock/index.js");
    const data = {x: new Float32Array(64), y: new Int32Array(1), shape: [1, 8, 8]};
    const onEvent = ({state, detail}) => detail && (window.said = `${state}: ${detail}`);
    new Device({server: "%s", data, onEvent}).start();
})()
"""


async def test_a_socket_that_does_not_open_is_told_with_its_causes(tmp_path: Path) -> None:
    """The server refuses the WebSocket of a page that it does not list; browsers hide the reason."""
    server = ef.Server(MODEL, directory=tmp_path / "run", evaluate="digits:", server={"open": True})
    async with embedding() as site, server, browsing(tmp_path / "browser") as tab:
        await tab.go(f"{site}/index.html")
        await tab.until(f"location.href.startsWith('{site}') && document.readyState === 'complete'")
        await tab.run(WITHOUT_A_SOCKET % server.url)
        said = await tab.until("window.said")
        assert said.startswith("connecting: the server answers, but no WebSocket opens: this device has no")
        assert "server.origins" in said
        assert "certificate for one" not in said, "it speaks plain HTTP"


FROM_ANOTHER_SITE = """
(async () => {
    const tried = (promise) => promise.then(() => "done", (error) => error.name);
    const frame = document.createElement("iframe");
    document.body.append(frame);
    const loaded = new Promise((resolve) => (frame.onload = resolve));
    frame.src = "%(url)s/train";
    await loaded;
    const body = JSON.stringify({name: "a", key: "", proof: ""});
    const headers = {Authorization: "Bearer %(token)s"};
    return [
        await tried(import("%(url)s/train/device/index.js")),
        await tried(fetch("%(url)s/train")),
        await tried(fetch("%(url)s/v1/join", {method: "POST", headers, body})),
        await tried(fetch("%(url)s/v1/join", {method: "POST", body})),
    ];
})()
"""


async def test_a_page_of_another_site_neither_shows_it_nor_reads_it_nor_joins(tmp_path: Path) -> None:
    """Also with a token in its hands: the operator has not listed its origin."""
    server = ef.Server(MODEL, directory=tmp_path / "run", evaluate="digits:", server={"browsers": True})
    async with embedding() as site, server, browsing(tmp_path / "browser") as tab:
        await tab.go(f"{site}/index.html")
        await tab.until(f"location.href.startsWith('{site}') && document.readyState === 'complete'")
        done = await tab.run(FROM_ANOTHER_SITE % {"url": server.url, "token": server.token})
        assert done == ["TypeError"] * 4
        assert any("frame-ancestors" in error for error in tab.errors), tab.errors
        assert devices(server) == []
