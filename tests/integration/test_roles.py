"""Who is let in, who speaks under a name, what a device keeps. test_grid.py has all routes and records."""

import asyncio
import json
import ssl
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import aiohttp
import pytest

from edgeflock.client.identity import ClientIdentity, load_identity, save_identity
from edgeflock.client.transport import Link, credentials
from edgeflock.server.hosting.run import open_run
from edgeflock.server.identity import Caller, Logins, Register, Role, own_certificate, server_tls
from edgeflock.shared.errors import ConfigError, NameInUse, Unauthorized
from edgeflock.shared.identity import Token, new_key
from edgeflock.shared.settings.config import parse
from edgeflock.tui.sources import FeedClient
from tests.hosting import RUN, hosting
from tests.integration.operator import operating
from tests.integration.test_reconnect import link, update

ROLES: tuple[Role, ...] = ("device", "viewer", "admin")

VIEWER = "secret of the viewers"


async def test_devices_are_told_of_the_run_and_not_of_each_other(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        async with link(hosted.port, "somebody-elses", hosted.enrol("somebody-elses")) as device:
            await device.join()
        async with operating(hosted.port, hosted.enrol("pi").credential) as curious:
            status, reported = await curious.get("/v1/status")
            assert status == 200
            assert json.loads(reported).keys() == {
                "run", "state", "diverged", "model", "parameters", "version", "updates_target", "privacy",
            }  # fmt: skip
            assert "somebody-elses" not in reported


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer", "Bearer  "])
async def test_a_scheme_is_written_in_any_case(scheme: str, tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True, viewer_token=VIEWER) as hosted, aiohttp.ClientSession() as http:
        for secret, wanted in ((VIEWER, 200), ("another", 401)):
            headers = {"Authorization": f"{scheme} {secret}"}
            async with http.get(f"{hosted.url}/v1/evaluations", headers=headers) as response:
                assert response.status == wanted


async def test_the_caller_of_a_request_is_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose secret is unknown, and one with the login of a browser."""
    lookups: list[bytes] = []
    identify = Register.identify_digest

    def counted(register: Register, digest: bytes) -> Caller:
        lookups.append(digest)
        return identify(register, digest)

    async with hosting(tmp_path, closed=True, viewer_token=VIEWER) as hosted, aiohttp.ClientSession() as http:
        login = Logins(hosted.register).begin(hosted.register.identify(VIEWER))
        pi = hosted.enrol("pi").credential
        monkeypatch.setattr(Register, "identify_digest", counted)
        cookie = {"Cookie": f"edgeflock-{RUN}={login}"}
        for headers in ({"Authorization": f"Bearer {text}"} for text in (VIEWER, pi, "unknown")), [cookie]:
            for shown in headers:
                for path in ("/v1/status", "/v1/model", "/metrics", "/v1/nothing", "/livez", "/v1/session"):
                    lookups.clear()
                    async with http.get(f"{hosted.url}{path}", headers=shown):
                        assert len(lookups) == 1, (path, shown)


@pytest.mark.parametrize("path", ["/v1/session", "/v1/feed"])
async def test_pages_of_other_sites_open_no_websocket(path: str, tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, aiohttp.ClientSession() as http:
        for origin in ("http://elsewhere.example", "null", f"http://127.0.0.1:{hosted.port + 1}"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(f"{hosted.url}{path}", origin=origin)
            assert refused.value.status == 403
        async with http.ws_connect(f"{hosted.url}{path}", origin=hosted.url):
            pass


# Sessions


async def test_nobody_speaks_under_anothers_name(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        pi, jetson = hosted.enrol("pi"), hosted.enrol("jetson")
        thieves = {
            "another device's credential": (replace(jetson, name="pi"), "pi"),
            "its own under another name": (jetson, "pi"),
            "a stolen credential without its key": (replace(pi, key=new_key()), "pi"),
            "another register's proof": (replace(pi, realm=bytes(16)), "pi"),
            "a proof for another server": (replace(pi, pin=bytes([1] * 32)), "pi"),
        }
        for what, (identity, name) in thieves.items():
            url = hosted.url
            async with link(hosted.port, name) as device:
                device._credentials._identity = identity  # the pin is not looked at on plain HTTP
                device._credentials._apply()
                with pytest.raises(Unauthorized):
                    await device.join()
            assert "pi" not in hosted.registry.devices, (what, url)
        async with link(hosted.port, "pi", pi) as honest:
            await honest.join()


async def test_revoking_ends_a_session_within_a_second_and_for_good(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        pi, jetson = hosted.enrol("pi"), hosted.enrol("jetson")
        async with link(hosted.port, "pi", pi) as gone, link(hosted.port, "jetson", jetson) as stays:
            await gone.join()
            await stays.join()
            began = time.monotonic()
            await asyncio.to_thread(_revoke, tmp_path, "pi")
            while hosted.registry.devices["pi"].connection.is_connected:
                await asyncio.sleep(0.01)
            took = time.monotonic() - began
            with pytest.raises(Unauthorized):
                await gone.push(update(1, 0))
            assert (await stays.push(update(1, 0))).version == 1
    async with hosting(tmp_path, closed=True) as again:
        async with link(again.port, "pi", pi) as gone:
            with pytest.raises(Unauthorized):
                await gone.join()
        async with link(again.port, "jetson", jetson) as stays:
            await stays.join()
    print(f"a revoked session ended after {took:.2f} s")


def _revoke(directory: Path, name: str) -> None:
    """As another process does."""
    command = Register(directory)
    command.revoke(name)
    command.close()


async def test_a_token_that_is_taken_back_ends_what_is_watched_with_it(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        token = hosted.register.create("viewer")
        async with operating(hosted.port, token.text) as viewer, viewer.feed() as frames:
            await frames.next()
            command = Register(tmp_path)
            command.delete(command.tokens[token.digest].id)
            command.close()
            while (message := await frames.socket.receive()).type is aiohttp.WSMsgType.BINARY:
                pass
            assert message.data == 4401


async def test_a_device_rotates_its_key_when_it_is_asked_to(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        first = hosted.enrol("pi")
        reported: list[ClientIdentity] = []
        hello = link(hosted.port, "pi").conversation.hello
        async with Link(hosted.url, first, hello, Random(0), on_renewed=reported.append) as device:
            await device.join()
            await device.push(update(1, 0))
            command = Register(tmp_path)
            command.rotate("pi")
            command.close()
            while not reported:  # its session is ended, and in the next one it is told
                await device.pull(None)
                await asyncio.sleep(0.01)
        (second,) = reported
        assert (second.name, second.realm) == ("pi", first.realm)
        assert second.key != first.key
        async with Link(hosted.url, second, hello, Random(0), on_renewed=reported.append) as device:
            await device.join()
        assert reported == [second], "it is asked for one new key"
        async with link(hosted.port, "pi", second) as device:
            assert (await device.join()).sequence == 1
        async with link(hosted.port, "pi", first) as device:
            with pytest.raises(Unauthorized):
                await device.join()


# Joining


async def test_a_device_joins_over_tls_and_trains(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True, with_tls=True) as hosted:
        token = hosted.register.create("device", graph=bytes(32)).text
        identity = await credentials.join(hosted.url, token, "pi")
        save_identity(identity, tmp_path / "kept" / "identity.json")
        assert load_identity(tmp_path / "kept" / "identity.json") == identity
        assert identity.graph == bytes(32)
        async with Link(hosted.url, identity, link(0, "pi").conversation.hello, Random(0)) as device:
            await device.join()
            assert (await device.push(update(1, 0))).version == 1
        with pytest.raises(Unauthorized, match="was for one device"):
            await credentials.join(hosted.url, token, "jetson")
        with pytest.raises(NameInUse, match="give each its own --name"):
            await credentials.join(hosted.url, hosted.register.create("device").text, "pi")
        lines = (tmp_path / "audit.jsonl").read_text().splitlines()
        assert [json.loads(line)["did"] for line in lines] == ["'pi' joined"]
        assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


@asynccontextmanager
async def in_the_middle(directory: Path, port: int) -> AsyncIterator[tuple[int, list[bytes]]]:
    """(port, what was heard) of somebody who shows a certificate of his own, and passes on what he hears."""
    directory.mkdir()
    tls, _ = server_tls(own_certificate(directory, "127.0.0.1"))
    heard: list[bytes] = []
    lines: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "this is a coroutine"
        lines.append(task)
        try:
            heard.append(await reader.read(1 << 16))
        except (OSError, ssl.SSLError):
            pass
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        server.close()
        if lines:
            await asyncio.wait(lines)  # until they are closed


async def test_who_stands_between_gets_nothing(tmp_path: Path) -> None:
    async with hosting(tmp_path / "run", closed=True, with_tls=True) as hosted:
        token, identity = hosted.register.create("device", reusable=True).text, hosted.enrol("pi")
        viewer = hosted.register.create("viewer").text
        async with in_the_middle(tmp_path / "mallory", hosted.port) as (port, heard):
            url = f"https://127.0.0.1:{port}"
            with pytest.raises(ConfigError, match="nothing was sent"):
                await credentials.join(url, token, "jetson")
            async with Link(url, identity, link(0, "pi").conversation.hello, Random(0)) as device:
                with pytest.raises(ConfigError, match="nothing was sent"):
                    await device.join()
                with pytest.raises(ConfigError, match="nothing was sent"):
                    await device.downloads.graph("step")
            with pytest.raises(ConfigError, match="nothing was sent"):
                await FeedClient(url, viewer).device("pi")
            assert not any(heard)


async def test_a_token_of_a_server_with_tls_is_not_sent_in_the_clear(tmp_path: Path) -> None:
    for url, why in ((f"http://127.0.0.1:{1}", "write https://"), ("http://192.0.2.1:1", "write https://")):
        with pytest.raises(ConfigError, match=why):
            await credentials.join(url, Token.new(bytes(32)).text, "pi", insecure=True)
    with pytest.raises(ConfigError, match="--insecure"):
        await credentials.join("http://192.0.2.1:1", Token.new().text, "pi")


async def test_bad_joinings_are_told(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted, aiohttp.ClientSession() as http:
        headers = {"Authorization": f"Bearer {hosted.register.create('device').text}"}
        good = {"name": "pi", "key": "A" * 43, "proof": "A" * 86}
        for body, why in (
            (b"{", "not JSON"),
            (b"[]", "a JSON object"),
            (json.dumps(good | {"name": ""}).encode(), "name must be"),
            (json.dumps(good | {"name": "a\nb"}).encode(), "name must be"),
            (json.dumps(good | {"name": 7}).encode(), "name must be"),
            (json.dumps(good | {"name": "p\u0456"}).encode(), "name must have letters of one script"),
            (json.dumps(good | {"key": 7}).encode(), "key must be 32 bytes"),
            (json.dumps(good | {"proof": "A" * 85}).encode(), "proof must be 64 bytes"),
            (json.dumps(good | {"before": "A"}).encode(), "before must be 64 bytes"),
        ):
            async with http.post(f"{hosted.url}/v1/join", data=body, headers=headers) as response:
                assert response.status == 400
                assert why in (await response.json())["detail"]
        assert not hosted.register.devices


@pytest.mark.slow
async def test_five_hundred_devices_join_at_once(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted:
        token = hosted.register.create("device", reusable=True).text
        identities = await asyncio.gather(
            *(credentials.join(hosted.url, token, f"pi-{n}") for n in range(500))
        )
        assert len({identity.credential for identity in identities}) == len(hosted.register.devices) == 500


# Files


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_an_identity_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    save_identity(ClientIdentity("https://a", "pi", "efd1.x", new_key(), bytes(16)), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        load_identity(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"server": 1}', '{"key": "*"}'])
def test_a_file_that_holds_no_identity_is_told(text: str, tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="holds no identity"):
        load_identity(path)


def test_a_run_has_a_token_for_its_operator(tmp_path: Path) -> None:
    config = parse(overrides=[f"server.directory={tmp_path}", "model.data="])
    file = tmp_path / "admin-token"
    with open_run(config) as opened:
        secret = file.read_text().strip()
        assert opened.register.identify(secret).role == "admin"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert (opened.tls, opened.pin) == (None, b"")
    with open_run(
        parse(overrides=[f"server.directory={tmp_path}", "model.data=", "server.host=0.0.0.0"])
    ) as opened:
        assert opened.tls is not None
        assert Token.parse(file.read_text().strip()).pin == opened.pin != b""
        assert stat.S_IMODE((tmp_path / "certificate-key.pem").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["server.host=0.0.0.0", "server.open=true"], "server.open = true lets in everybody"),
        (["server.key=x"], "set both or neither"),
        (["server.host=0.0.0.0", "server.certificate=x"], "without server.key"),
        (["server.certificate=x"], "is no certificate in PEM"),
    ],
)
def test_settings_that_cannot_go_together_are_told(settings: list[str], why: str, tmp_path: Path) -> None:
    config = parse(overrides=[f"server.directory={tmp_path}", "model.data=", *settings])
    with pytest.raises(ConfigError, match=why), open_run(config):
        pass
