"""The page in a browser comes back by itself, whatever becomes of its server."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from random import Random

import pytest

from edgeflock.client.identity import ClientIdentity
from edgeflock.client.transport import Link
from edgeflock.server.http import page
from edgeflock.server.identity import Register, Role
from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.identity import NO_PIN, join_message, new_key, public_of, sign
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from tests.browser import Tab, browsing, needs_chromium
from tests.hosting import LAYOUT, hosting
from tests.integration.server_process import server_process
from tests.integration.test_browser import log_in, shown
from tests.integration.test_reconnect import update
from tests.ports import lasting

pytestmark = needs_chromium

ANOTHER = "0123456789abcdef"

LIVE = "document.getElementById('link').innerText === 'live' && document.body.className === ''"
LOST = "document.body.className === 'old'"
LOGIN = "!!document.querySelector('form.login')"


def token(directory: Path, role: Role = "viewer") -> str:
    """A new token of this run."""
    directory.mkdir(exist_ok=True)
    with closing(Register(directory)) as register:
        return register.create(role).text


def revoke_all(directory: Path) -> None:
    with closing(Register(directory)) as register:
        for one in list(register.tokens.values()):
            register.delete(one.id)


def enrolled(directory: Path, port: int, name: str) -> ClientIdentity:
    """A device that has joined this run."""
    with closing(Register(directory)) as register:
        secret, key = register.create("device").text, new_key()
        proof = sign(key, join_message(secret, NO_PIN, public_of(key), name))
        joined = register.join(secret, name, public_of(key), proof, b"", b"", 1000)
        return ClientIdentity(f"http://127.0.0.1:{port}", name, joined.credential, key, joined.realm, b"")


async def newest(tab: Tab) -> int:
    """The version that the page shows, once it shows one."""
    return int(await tab.until("document.querySelector('#health b')?.innerText.replaceAll(',', '')"))


@asynccontextmanager
async def load(directory: Path, port: int, up: asyncio.Event) -> AsyncIterator[None]:
    """A device that pushes updates, one after the other, through restarts, while the server is `up`."""

    async def once_it_is_up(_: float) -> None:
        await asyncio.sleep(0)
        await up.wait()

    async def push(identity: ClientIdentity) -> None:
        hello = Hello(PROTOCOL, "pi", LAYOUT.digest, {})
        with suppress(EdgeflockError):  # the test is over, and so is the server
            async with Link(identity.server, identity, hello, Random(0), once_it_is_up) as device:
                version = (await device.join()).version
                for number in range(1, 1_000_000):
                    version = (await device.push(update(number, version))).version

    pushing = asyncio.create_task(push(enrolled(directory, port, "pi")))
    try:
        yield
    finally:
        pushing.cancel()
        await asyncio.wait([pushing])


@pytest.mark.slow
async def test_after_restarts_under_load_and_a_kill(tmp_path: Path) -> None:
    run, port, up = tmp_path / "run", lasting(), asyncio.Event()
    viewer = token(run)

    async def follows() -> None:
        """The page shows new versions."""
        up.set()
        await tab.until(LIVE)
        version = await newest(tab)
        await tab.until(f"document.querySelector('#health b').innerText !== '{version:,}'")
        up.clear()

    async def is_lost() -> None:
        await tab.until(LOST)
        assert not await tab.run(LOGIN), "what was known stays"

    async with browsing(tmp_path / "browser") as tab, load(run, port, up):
        for number in range(2):
            async with hosting(run, closed=True, port=port):
                if not number:
                    await log_in(tab, f"http://127.0.0.1:{port}", viewer)
                await follows()
            await is_lost()
        async with server_process(run, port) as server:
            await follows()
            server.kill()
            await is_lost()
        async with server_process(run, port):
            await follows()


@pytest.mark.slow
async def test_after_a_server_that_hangs(tmp_path: Path) -> None:
    run, port = tmp_path / "run", lasting()
    viewer = token(run)
    async with browsing(tmp_path / "browser") as tab, server_process(run, port) as server:
        await log_in(tab, f"http://127.0.0.1:{port}", viewer)
        await tab.until(LIVE)
        server.send_signal(signal.SIGSTOP)
        await shown(tab, "stalled")
        await tab.until("document.getElementById('link').className === 'bad'")
        await shown(tab, "no answer")
        server.send_signal(signal.SIGCONT)
        await tab.until(LIVE)
        # A page that is opened meanwhile comes, too.
        server.send_signal(signal.SIGSTOP)
        await tab.run("history.replaceState({}, '', '#fleet'); location.reload()")
        os.kill(server.pid, signal.SIGCONT)
        await tab.until(LIVE)


@pytest.mark.slow
async def test_a_token_that_was_revoked_meanwhile_is_asked_for_once(tmp_path: Path) -> None:
    run, port = tmp_path / "run", lasting()
    viewer = token(run)
    async with browsing(tmp_path / "browser") as tab:
        async with server_process(run, port):
            await log_in(tab, f"http://127.0.0.1:{port}", viewer)
            await tab.until(LIVE)
        await tab.until(LOST)
        revoke_all(run)
        again = token(run)
        async with server_process(run, port):
            await shown(tab, "Log in again")
            await tab.run("document.querySelector('.login input').value = 'typed'; window.asked = 0")
            asked = len(tab.asked)
            # Longer than what redraws the page, and than the first pauses of its link.
            await tab.run(
                "new Promise((over) => { let n = 12; const look = () => n-- ? "
                "requestAnimationFrame(() => setTimeout(look, 250)) : over(1); look(); })"
            )
            assert await tab.run("document.querySelector('.login input').value") == "typed"
            assert tab.asked[asked:] == [], "it does not try for ever"
            await tab.run(
                f"document.querySelector('.login input').value = '{again}';"
                "document.querySelector('form.login').requestSubmit()"
            )
            await tab.until(LIVE)


@pytest.mark.slow
async def test_another_run_at_the_same_address(tmp_path: Path) -> None:
    port = lasting()
    viewer, other = token(tmp_path / "run"), token(tmp_path / "other")
    async with browsing(tmp_path / "browser") as tab:
        async with server_process(tmp_path / "run", port):
            await log_in(tab, f"http://127.0.0.1:{port}", viewer)
            await tab.until(LIVE)
        await tab.until(LOST)
        async with server_process(tmp_path / "other", port, ANOTHER):
            await tab.until(LOGIN)
            await log_in(tab, f"http://127.0.0.1:{port}", other)
            await tab.until(LIVE)
            await shown(tab, ANOTHER[:8])
        await tab.until(LOST)
        async with server_process(tmp_path / "run", port):
            await tab.until(LIVE)
            await shown(tab, "5f3c0ad1")


@pytest.mark.slow
async def test_a_page_loads_anew_from_a_server_of_another_version_or_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an open run, where nobody logs in."""
    port = lasting()
    async with browsing(tmp_path / "browser") as tab:
        async with hosting(tmp_path / "run", port=port):
            await tab.go(f"http://127.0.0.1:{port}")
            await tab.until(LIVE)
            await tab.run("window.kept = true; location.hash = '#events'")
        await tab.until(LOST)
        async with hosting(tmp_path / "run", port=port):
            await tab.until(LIVE)
            assert await tab.run("window.kept"), "the same page of the same run stays"
        await tab.until(LOST)
        monkeypatch.setattr(page, "edition", lambda of: "another")
        async with hosting(tmp_path / "run", port=port):
            await tab.until(f"!window.kept && {LIVE}")
            await tab.run("window.kept = true")
        await tab.until(LOST)
        async with hosting(tmp_path / "other", port=port, run=ANOTHER):
            await tab.until(f"!window.kept && {LIVE}")
            await shown(tab, ANOTHER[:8])
            assert await tab.run("location.hash") == "#events"
