"""The page in a real browser, at a real server. Skipped where there is no Chromium."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgpack
import pytest
from aiohttp import web

from edgeflock.shared.identity import digest_of
from edgeflock.shared.protocol import feed
from edgeflock.shared.protocol.frames import Finding
from tests.browser import Tab, browsing, needs_chromium
from tests.hosting import gateway, hosting
from tests.integration.operator import ADMIN
from tests.integration.test_reconnect import link, update
from tests.tui.runs import frames

pytestmark = needs_chromium

HOSTILE = "<img src=x onerror=document.title='taken'>"


async def log_in(tab: Tab, url: str, token: str) -> None:
    await tab.go(url)
    await tab.until("!!document.querySelector('form.login')")
    await tab.run(
        f"document.querySelector('.login input').value = {json.dumps(token)};"
        "document.querySelector('form.login').requestSubmit()"
    )


async def press(tab: Tab, title: str) -> None:
    """The button that is called so."""
    buttons = "[...document.querySelectorAll('button')]"
    await tab.until(f"!!{buttons}.find((one) => one.innerText.trim() === {json.dumps(title)})")
    await tab.run(f"{buttons}.findLast((one) => one.innerText.trim() === {json.dumps(title)}).click()")


async def shown(tab: Tab, text: str) -> None:
    """Wait until the page says so."""
    await tab.until(f"document.body.innerText.includes({json.dumps(text)})")


@pytest.mark.slow
async def test_an_admin_looks_and_acts(tmp_path: Path) -> None:
    async with browsing(tmp_path / "browser") as tab:
        async with hosting(tmp_path / "run", closed=True, admin_token=ADMIN) as hosted:
            async with (
                link(hosted.port, "pi-2", hosted.enrol("pi-2")) as pi,
                link(hosted.port, HOSTILE, hosted.enrol(HOSTILE)) as hostile,
            ):
                for device in (pi, hostile):
                    await device.join()
                    await device.push(update(1, 0))
                await log_in(tab, hosted.url, "no token at all")
                await shown(tab, "the server does not know this token or credential")
                await log_in(tab, hosted.url, ADMIN)
                await shown(tab, "live")
                await tab.until("document.querySelectorAll('svg .line').length > 3")
                assert "5f3c0ad1" in await tab.text()
                assert await tab.run("document.cookie") == "", "no script reads it"
                tab.errors.clear()  # the browser tells of the 401s

                await tab.run("location.hash = '#fleet'")
                await shown(tab, HOSTILE)
                await tab.run(
                    "const field = document.querySelector('input[type=search]');"
                    "field.value = 'name:pi updates>=1';"
                    "field.dispatchEvent(new Event('input'))"
                )
                await shown(tab, "1 of 2 devices")
                assert await tab.run("document.querySelectorAll('.rows .row').length") == 1

                await tab.run(f"location.hash = '#device/' + encodeURIComponent({json.dumps(HOSTILE)})")
                await press(tab, "Pause")
                await shown(tab, f"Pause {HOSTILE}?")
                await tab.run("document.querySelector('dialog input').value = '<b>hot</b>'")
                assert not hosted.registry.devices[HOSTILE].connection.order, "nothing before it is confirmed"
                await tab.run("document.querySelector('dialog form').requestSubmit()")
                await shown(tab, "is paused")
                up = "/devices up\\s*1\\s*of 2/i.test(document.getElementById('health').innerText)"
                await tab.until(up)
                await tab.until("!document.querySelector('dialog')")
                order = hosted.registry.devices[HOSTILE].connection.order
                assert order is not None
                assert order.reason == "<b>hot</b>"
                await press(tab, "Resume")
                await shown(tab, f"Resume {HOSTILE}?")
                await press(tab, "Cancel")
                await tab.until("!document.querySelector('dialog')")

                await tab.run(
                    "location.hash = '#fleet'; field.value = ''; field.dispatchEvent(new Event('input'))"
                )
                await press(tab, "Mark devices")
                row = (
                    "[...document.querySelectorAll('.rows .row')].find((one) => one.dataset.name === 'pi-2')"
                )
                await tab.run(f"{row}.click()")
                await shown(tab, "1 marked")
                assert await tab.run("location.hash") == "#fleet", "a row marks and does not lead away"
                await press(tab, "Mark all shown")
                await shown(tab, "2 marked")
                await press(tab, "Pause")
                await shown(tab, "Pause 2 devices?")
                await tab.run("document.querySelector('dialog form').requestSubmit()")
                await shown(tab, "Done for 2 of 2 devices")
                assert all(device.connection.order for device in hosted.registry.devices.values())
                await press(tab, "Resume")
                await shown(tab, "Resume 2 devices?")
                await tab.run("document.querySelector('dialog form').requestSubmit()")
                await tab.until("!document.querySelector('dialog')")
                await press(tab, "Done")
                await tab.run(f"{row}.click()")
                await tab.until("location.hash === '#device/pi-2'")

                await press(tab, "Learning rate")
                await tab.run("document.querySelector('dialog input').value = '0.0125'")
                await press(tab, "Set it")
                await shown(tab, "the learning rate is 0.0125")
                assert hosted.engine.published.learning_rate == 0.0125
                await press(tab, "Roll back")
                await tab.run("document.querySelector('dialog input').value = '77'")
                await press(tab, "Go back")
                await shown(tab, "It was not done")

                await tab.run("location.hash = '#events'")
                await shown(tab, "learning rate 0.01 -> 0.0125")
                await tab.looks(360, 740)
                for page in ("overview", "fleet", "events", "device/pi-2"):
                    await tab.run(f"location.hash = '#{page}'")
                    await tab.until("document.documentElement.scrollWidth <= 360")  # once it is laid out anew
                await tab.run("location.hash = '#fleet'")
                assert "taken" not in await tab.run("document.title")
                assert await tab.run("document.querySelectorAll('main img, dialog img').length") == 0
                assert {url.partition("/")[2].split("/")[1] for url in tab.asked} == {
                    f"127.0.0.1:{hosted.port}"
                }, "nothing from elsewhere"
                assert [error for error in tab.errors if "409" not in error] == []
        await tab.until("document.body.className === 'old'")
        await tab.until("document.getElementById('link').className === 'bad'")
        await shown(tab, HOSTILE)  # what was known stays


@pytest.mark.slow
async def test_an_admin_invites_a_browser(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path / "run", "server.browsers=true", closed=True, admin_token=ADMIN) as hosted,
        browsing(tmp_path / "browser") as tab,
    ):
        await tab.looks(390, 844)
        await log_in(tab, hosted.url, ADMIN)
        for answer, reusable in (("For one", False), ("For many", True)):
            await press(tab, "Invite")
            await press(tab, answer)
            await shown(tab, f"{hosted.url}/train#token=ef1.")
            address = await tab.run("document.querySelector('dialog p').innerText")
            made = hosted.register.tokens[digest_of(address.partition("#token=")[2])]
            assert (made.role, made.reusable) == ("device", reusable)
            assert await tab.run("document.documentElement.scrollWidth") <= 390
            if find_spec("segno") is not None:
                assert await tab.run("document.querySelector('dialog svg path').getBBox().width") > 25
            await press(tab, "Done")
            await tab.until("!document.querySelector('dialog')")
        await press(tab, "Invite")
        before = dict(hosted.register.tokens)
        await press(tab, "Cancel")
        assert hosted.register.tokens == before


@pytest.mark.slow
async def test_a_viewer_is_offered_nothing_to_do_and_leaves(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path / "run", closed=True, viewer_token="look") as hosted,
        browsing(tmp_path / "browser") as tab,
    ):
        await log_in(tab, hosted.url, "look")
        await shown(tab, "live")
        text = await tab.text()
        assert "viewer" in text
        assert "Checkpoint" not in text
        assert "no evaluation with accuracy yet" in text
        await tab.run("location.hash = '#fleet'")
        await shown(tab, "No device has joined yet.")
        await press(tab, "Log out")
        await tab.until("!!document.querySelector('form.login')")
        # A login that ends elsewhere ends the page, too.
        await log_in(tab, hosted.url, "look")
        await shown(tab, "live")
        await tab.run("fetch('/v1/logout', { method: 'POST' }).then(() => 1)")
        await shown(tab, "Log in again")


async def test_gateways_and_shards_are_on_the_page(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path / "run", closed=True, viewer_token="look") as hosted,
        gateway(hosted, HOSTILE),
        browsing(tmp_path / "browser") as tab,
    ):
        await log_in(tab, hosted.url, "look")
        await shown(tab, HOSTILE)
        cells = "[...document.querySelectorAll('.parts tbody td')].map((one) => one.innerText)"
        assert (await tab.run(cells))[0] == "0"
        await tab.until(f"{cells}[1] === '0.00'")  # updates a second, once there are two frames
        assert await tab.run("document.querySelector('.shards').hidden")
        assert "taken" not in await tab.run("document.title")
        for overview, words in (
            (
                {"shards": [["one", 2e9], ["two", 1e9]]},
                "Shards 2 on 2 nodes, 3.00 GB of the model, the largest",
            ),
            ({"restored": 3}, "Shards are being made again from the journal; made again 3 times"),
            ({}, ""),
        ):
            reported = await tab.run(
                "import('/assets/parts.js').then(({ Parts }) => { const one = new Parts();"
                f" one.render({json.dumps(overview)}); document.body.append(one.element);"
                " const text = one.element.innerText; one.element.remove(); return text; })"
            )
            assert reported.strip().startswith(words)
        await tab.looks(360, 740)
        await tab.until("document.documentElement.scrollWidth <= 360")  # once it is laid out anew


async def test_findings_are_a_line_each_that_unfolds(tmp_path: Path) -> None:
    (first,) = frames(5, 0)
    since = first.time - 60
    found = (
        Finding("diverged", "critical", None, since, HOSTILE, "do this"),
        Finding("hot", "warning", "pi5-3", since, HOSTILE, "do this"),
        Finding("gone", "notice", "pi5-3", since, HOSTILE, "do this"),
        Finding("clock", "notice", None, since, HOSTILE, "do this"),
    )
    one = replace(first, overview=replace(first.overview, findings=found, more_findings=2))
    text = base64.b64encode(feed.encode(one)).decode()
    async with hosting(tmp_path / "run") as hosted, browsing(tmp_path / "browser") as tab:
        await tab.looks(1280, 800)
        await tab.go(hosted.url)
        await shown(tab, "live")
        # All at once, so that no frame of the server's comes in between.
        reported = await tab.run(
            "Promise.all(['msgpack', 'state', 'findings', 'fleet']"
            ".map((name) => import(`/assets/${name}.js`)))"
            ".then(([{ decode }, { reduce, state }, { Findings }, { Fleet }]) => {"
            f" reduce(decode(Uint8Array.from(atob('{text}'), (c) => c.charCodeAt(0)).buffer));"
            " const [all, fleet] = [new Findings(), new Fleet()];"
            " document.getElementById('page').replaceChildren(all.element, fleet.element);"
            " const high = () => [...all.element.querySelectorAll('.finding')]"
            "   .map((one) => one.checkVisibility() ? one.offsetHeight : 0);"
            " all.render(); fleet.render(); const folded = high();"
            " all.element.querySelector('summary').click();"
            " const said = all.element.innerText; const open = high();"
            " state.findings = state.findings.slice(0, 1); state.overview.more_findings = 0; all.render();"
            " const alone = all.element.innerText; state.findings = []; all.render();"
            " return { folded, open, said, alone, hidden: all.element.hidden,"
            "   fleet: fleet.element.innerText }; })"
        )
        assert 0 < reported["folded"][0] < 60
        assert reported["folded"][1:] == [0, 0, 0]
        assert all(0 < high < 60 for high in reported["open"])
        assert "+5 more" in reported["said"]
        assert "and 2 more that are less grave" in reported["said"]
        assert "more" not in reported["alone"]
        assert reported["hidden"]
        assert "\u25b2 pi5-3" in reported["fleet"], "the worst that is wrong with it"
        assert "\u25cb pi5" not in reported["fleet"]
        assert await tab.run("document.title") != "taken"


async def test_a_run_that_ends_by_time_says_when(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path / "run", "end.seconds=86400", "end.updates=0") as hosted,
        browsing(tmp_path / "browser") as tab,
        link(hosted.port) as device,
    ):
        await device.join()
        await device.push(update(1, 0))
        await tab.go(hosted.url)
        await tab.until(r"/time left\s*23h/.test(document.getElementById('health').innerText)")
        assert await tab.run("document.querySelector('#health progress').value < 0.01")


@pytest.mark.slow
async def test_frames_are_read_as_they_were_written(tmp_path: Path) -> None:
    """And a fleet of thousands has as many elements as a screen has rows."""
    many = list(frames(5000, 2))
    values: list[Any] = [
        None, True, False, 0, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**53, -1, -32, -33, -129, -32_769,
        -(2**31) - 1, 0.5, -1e300, "", "a" * 31, "a" * 32, "é\u20ac\U0001f600" * 9, "x" * 300, "y" * 70_000,
        list(range(20)), [[]] * 70_000, {"a": {"b": [1]}}, {str(n): n for n in range(20)}, {"__proto__": 1},
    ]  # fmt: skip
    broken = [
        b"", b"\xc1", b"\xc4\x01a", b"\xd4\x00a", b"\xd9\x05abc", b"\xdd\xff\xff\xff\xff",
        b"\xdf\x7f\xff\xff\xff",
        b"\x91" * 40 + b"\x01", b"\x01\x02",
        b"\x81\x01\x02", b"\x82\xa1a\x01\xa1a\x02", b"\xa2\xff\xfe", b"\xcb\x00",
    ]  # fmt: skip
    async with hosting(tmp_path / "run") as hosted, browsing(tmp_path / "browser") as tab:
        await tab.go(hosted.url)
        await shown(tab, "live")
        await tab.run(
            "Promise.all(['msgpack', 'state'].map((name) => import(`/assets/${name}.js`))).then((both) => {"
            " Object.assign(window, ...both);"
            " window.read = (text) => decode(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer); })"
        )

        async def read(octets: bytes) -> Any:
            return json.loads(await tab.run(f"JSON.stringify(read('{base64.b64encode(octets).decode()}'))"))

        assert await read(msgpack.packb(values)) == values
        for octets in broken:
            text = base64.b64encode(octets).decode()
            failed = f"try {{ read('{text}'); 'read' }} catch (error) {{ error.constructor.name }}"
            assert await tab.run(failed) == "Malformed", octets
        octets = feed.encode(many[0])
        assert await read(octets) == json.loads(json.dumps(msgpack.unpackb(octets)))

        for frame in many:
            text = base64.b64encode(feed.encode(frame)).decode()
            await tab.run(f"reduce(read('{text}'))")
        await tab.run("location.hash = '#fleet'")
        await shown(tab, "5,000 devices")
        assert 5 < await tab.run("document.querySelectorAll('.rows .row').length") < 60
        await tab.run("document.querySelector('.window').scrollTop = 1e9")
        await shown(tab, "zero2w-4997")
        assert await tab.run("document.querySelectorAll('.rows .row').length") < 60


@asynccontextmanager
async def elsewhere(script: str) -> AsyncIterator[str]:
    """The URL of a page of somebody else, with this script."""

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=f"<title>here</title><script>{script}</script>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_page_of_another_site_gets_nowhere(tmp_path: Path) -> None:
    """From another port of the same host, whose pages a browser sends the same cookies with."""
    attempt = """
        const tried = {};
        const socket = (path) => new Promise((over) => {
          const one = new WebSocket(`ws://127.0.0.1:PORT${path}`);
          one.onmessage = one.onopen = () => over("open");
          one.onerror = () => over("refused");
        });
        const post = (path) => fetch(`http://127.0.0.1:PORT${path}`, { method: "POST", credentials: "include",
          mode: "no-cors", body: JSON.stringify({ value: 7 }) }).then(() => "sent", () => "refused");
        const read = () => fetch("http://127.0.0.1:PORT/v1/status", { credentials: "include" }).then(
          (answer) => answer.text(), () => "refused");
        (async () => {
          tried.feed = await socket("/v1/feed");
          tried.session = await socket("/v1/session");
          tried.read = await read();
          await post("/v1/learning_rate");
          await post("/v1/checkpoint");
          window.tried = JSON.stringify(tried);
        })();
    """
    async with (
        hosting(tmp_path / "run", closed=True, admin_token=ADMIN) as hosted,
        browsing(tmp_path / "browser") as tab,
        elsewhere(attempt.replace("PORT", str(hosted.port))) as url,
    ):
        await log_in(tab, hosted.url, ADMIN)
        await shown(tab, "live")
        rate = hosted.engine.published.learning_rate
        await tab.go(url)
        tried = json.loads(await tab.until("window.tried"))
        assert tried == {"feed": "refused", "session": "refused", "read": "refused"}
        assert hosted.engine.published.learning_rate == rate
        assert "checkpoint" not in {event.kind for event in hosted.hub.events.list_from(0)[0]}
