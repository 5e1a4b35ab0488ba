"""The page over HTTP: what it is served with, who logs in, and what pages of other sites may."""

import json
import re
from http.cookies import Morsel
from pathlib import Path

import aiohttp
import pytest

from edgeflock.server.web import HEADERS, assets, edition
from edgeflock.server.web.attempts import ATTEMPTS
from tests.hosting import Hosted, hosting
from tests.integration.operator import ADMIN, operating
from tests.integration.test_reconnect import link, update

VIEWER = "secret of the viewers"
ELSEWHERE = {"Origin": "http://elsewhere.example"}


def own(hosted: Hosted) -> dict[str, str]:
    """What a browser says of the page that it has from this server."""
    return {"Origin": hosted.url}


async def logged_in(http: aiohttp.ClientSession, hosted: Hosted, token: str) -> Morsel[str]:
    """The cookie, which `http` keeps."""
    async with http.post(f"{hosted.url}/v1/login", json={"token": token}, headers=own(hosted)) as answer:
        assert answer.status == 200, await answer.text()
        (cookie,) = answer.cookies.values()
        return cookie


def browser() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def test_the_files_of_the_page_and_their_headers(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted, aiohttp.ClientSession() as http:
        for path in ("/", *(f"/assets/{name}" for name in assets())):
            async with http.get(f"{hosted.url}{path}") as answer:
                assert answer.status == 200
                assert {name: answer.headers[name] for name in HEADERS} == HEADERS
                etag = answer.headers["ETag"]
            async with http.get(f"{hosted.url}{path}", headers={"If-None-Match": etag}) as answer:
                assert (answer.status, await answer.read()) == (304, b"")
                assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
        for path in ("/assets/nothing.js", "/assets/..%2fpage.py", "/assets/__init__.py"):
            async with http.get(f"{hosted.url}{path}") as answer:
                assert answer.status == 404
        policy = HEADERS["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_the_page_has_nothing_inline_and_nothing_of_others() -> None:
    for name, asset in assets().items():
        text = asset.octets.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", text), name
        assert set(re.findall(r"\w+://[\w.]+", text)) <= {"http://www.w3.org"}, name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text), name
        for wanted in re.findall(r'"(?:assets|\.)/([^"]+)"', text):
            assert wanted in assets(), f"{name} asks for {wanted}"


async def test_a_login_is_a_cookie_that_says_nothing_of_the_token(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True, viewer_token=VIEWER) as hosted, browser() as http:
        async with http.get(f"{hosted.url}/v1/login") as answer:
            assert answer.status == 401
        cookie = await logged_in(http, hosted, VIEWER)
        assert cookie["httponly"]
        assert (cookie["samesite"], cookie["path"], cookie["secure"]) == ("Strict", "/", "")
        assert VIEWER not in cookie.value
        assert hosted.config.server.directory not in cookie.key
        async with http.get(f"{hosted.url}/v1/login") as answer:
            reported = await answer.json()
            assert reported == {"role": "viewer", "login": True, "edition": edition(assets())}
        async with http.get(f"{hosted.url}/v1/status") as answer:
            assert answer.status == 200
        async with http.ws_connect(f"{hosted.url}/v1/feed", headers=own(hosted)) as feed:
            assert (await feed.receive()).type is aiohttp.WSMsgType.BINARY
            async with http.post(f"{hosted.url}/v1/logout", headers=own(hosted)) as answer:
                assert answer.status == 200
            while (message := await feed.receive()).type is aiohttp.WSMsgType.BINARY:
                pass  # what was on its way
            assert feed.close_code == 4401, message
        http.cookie_jar.update_cookies({cookie.key: cookie.value})
        async with http.get(f"{hosted.url}/v1/status") as answer:
            assert answer.status == 401, "the number opens nothing any more"
        audit = (tmp_path / "audit.jsonl").read_text()
        assert "logged in to the page" in audit
        assert VIEWER not in audit


async def test_over_tls_the_cookie_stays_on_tls(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True, viewer_token=VIEWER, with_tls=True) as hosted:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http:
            assert (await logged_in(http, hosted, VIEWER))["secure"]


async def test_a_login_does_what_its_token_may(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True, admin_token=ADMIN, viewer_token=VIEWER) as hosted:
        async with link(hosted.port, "pi", hosted.enrol("pi")) as pi, browser() as http:
            await pi.join()
            await pi.push(update(1, 0))
            for token, status in ((VIEWER, 403), (ADMIN, 200)):
                await logged_in(http, hosted, token)
                pause = f"{hosted.url}/v1/devices/pi/pause"
                async with http.post(pause, json={"because": "hot"}, headers=own(hosted)) as answer:
                    assert answer.status == status
        revoked = hosted.register.create("viewer")
        async with browser() as http:
            await logged_in(http, hosted, revoked.text)
            hosted.register.delete(hosted.register.tokens[revoked.digest].id)
            async with http.get(f"{hosted.url}/v1/status") as answer:
                assert answer.status == 401


async def test_tokens_that_open_no_page(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True, viewer_token=VIEWER) as hosted, browser() as http:
        url = f"{hosted.url}/v1/login"
        device, joining = hosted.enrol("pi").credential, hosted.register.create("device").text
        for body, status in (
            ({"token": device}, 403),
            ({"token": joining}, 403),
            ({"token": 5}, 400),
            ({}, 400),
            ([], 400),
            ({"token": " "}, 400),
            ({"token": "x" * 5000}, 400),
        ):
            async with http.post(url, json=body, headers=own(hosted)) as answer:
                assert answer.status == status, body
                assert not answer.cookies


async def test_a_right_token_works_while_others_guess(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True, admin_token=ADMIN) as hosted, browser() as http:
        url = f"{hosted.url}/v1/login"
        for _ in range(ATTEMPTS):
            async with http.post(url, json={"token": "guess"}, headers=own(hosted)) as answer:
                assert answer.status == 401
        for _ in range(2):
            async with http.post(url, json={"token": "guess"}, headers=own(hosted)) as answer:
                assert (answer.status, (await answer.json())["code"]) == (429, "too-many-attempts")
                assert 0 < int(answer.headers["Retry-After"]) <= 60
            await logged_in(http, hosted, ADMIN)
        lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        failed = [line for line in lines if line["did"] == "failed to log in to the page"]
        assert [(line["who"], line["address"]) for line in failed] == [("anybody", "127.0.0.1")] * ATTEMPTS


async def test_logins_with_a_devices_secret_are_noted_and_limited(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True, admin_token=ADMIN) as hosted, browser() as http:
        joining = hosted.register.create("device")
        joining_id = hosted.register.tokens[joining.digest].id
        for token, count in ((hosted.enrol("pi").credential, 1), (joining.text, ATTEMPTS - 1)):
            for _ in range(count):
                answer = await http.post(f"{hosted.url}/v1/login", json={"token": token}, headers=own(hosted))
                assert (answer.status, (await answer.json())["code"]) == (403, "forbidden")
        for token in (joining.text, "guess"):
            answer = await http.post(f"{hosted.url}/v1/login", json={"token": token}, headers=own(hosted))
            assert (answer.status, (await answer.json())["code"]) == (429, "too-many-attempts")
        lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        failed = [line["who"] for line in lines if line["did"] == "failed to log in to the page"]
        assert failed == ["pi"] + [f"token {joining_id}"] * (ATTEMPTS - 1)


POSTS = (
    "/v1/login",
    "/v1/logout",
    "/v1/join",
    "/v1/devices/pi/pause",
    "/v1/devices/pi/resume",
    "/v1/devices/pi/drop",
    "/v1/learning_rate",
    "/v1/checkpoint",
    "/v1/rollback",
)


@pytest.mark.parametrize("path", POSTS)
async def test_pages_of_other_sites_post_nothing(path: str, tmp_path: Path) -> None:
    """Not even with an admin's own token, or login."""
    async with hosting(tmp_path, closed=True, admin_token=ADMIN) as hosted, browser() as http:
        await logged_in(http, hosted, ADMIN)
        known = {"Authorization": f"Bearer {ADMIN}"}
        rebound = {"Host": "elsewhere.example", "Origin": "http://elsewhere.example"}
        for headers in (ELSEWHERE, {"Origin": "null"}, rebound, ELSEWHERE | known):
            async with http.post(f"{hosted.url}{path}", json={"token": ADMIN}, headers=headers) as answer:
                assert answer.status == 403, headers
                assert "another site" in (await answer.json())["detail"]
        if path not in ("/v1/login", "/v1/join"):
            async with http.post(f"{hosted.url}{path}", json={}) as answer:
                assert answer.status == 403, "a cookie without an Origin is no browser's"


async def test_websockets_ask_where_a_page_is_from(tmp_path: Path) -> None:
    settings = "server.origins=https://flock.example.org, http://10.0.0.1"
    async with hosting(tmp_path, settings) as hosted, aiohttp.ClientSession() as http:
        for path in ("/v1/feed", "/v1/session"):
            for headers in (
                ELSEWHERE,
                {"Origin": "http://elsewhere.example", "Host": "elsewhere.example"},
                {"Origin": f"https://127.0.0.1:{hosted.port}"},
            ):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await http.ws_connect(f"{hosted.url}{path}", headers=headers)
                assert refused.value.status == 403, headers
            for headers in ({}, own(hosted), {"Origin": "https://flock.example.org"}):
                async with http.ws_connect(f"{hosted.url}{path}", headers=headers):
                    pass


async def test_an_open_run_shows_nothing_under_a_name_that_is_not_its_own(tmp_path: Path) -> None:
    """A page elsewhere, whose name now points to this machine, reads without an Origin."""
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, aiohttp.ClientSession() as http:
        for host, status in ((f"localhost:{hosted.port}", 200), ("elsewhere.example", 403)):
            for path in ("/v1/status", "/v1/model", "/v1/login"):
                async with http.get(f"{hosted.url}{path}", headers={"Host": host}) as answer:
                    assert answer.status == status, (host, path)
        known = {"Host": "elsewhere.example", "Authorization": f"Bearer {ADMIN}"}
        async with http.get(f"{hosted.url}/v1/status", headers=known) as answer:
            assert answer.status == 200


async def test_the_history_is_what_the_server_saw(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, operating(hosted.port, "") as viewer:
        async with link(hosted.port, "pi") as pi:
            await pi.join()
            await pi.push(update(1, 0))
            hosted.hub.trail.add(hosted.hub.mark(1e9))
        status, text = await viewer.get("/v1/history")
        assert status == 200
        time, version, ingress, egress, loss, connected = json.loads(text)[0]
        assert (time, version, loss, connected) == (1e9, 1, 0.5, 1)
        assert 0 < ingress <= hosted.traffic.total.ingress
        assert 0 < egress <= hosted.traffic.total.egress


async def test_a_listed_origin_reads_answers_with_a_token_and_others_do_not(tmp_path: Path) -> None:
    listed = "https://flock.example.org"
    async with hosting(tmp_path, f"server.origins={listed}", closed=True) as hosted, browser() as http:
        token = hosted.enrol("pi").credential
        url = f"{hosted.url}/v1/status"
        for origin, may in ((listed, True), ("https://evil.example", False)):
            async with http.options(url, headers={"Origin": origin}) as answer:
                assert (answer.status == 204) == may
                assert ("Authorization" in answer.headers.get("Access-Control-Allow-Headers", "")) == may
            for authorization, status in ((f"Bearer {token}", 200), ("Bearer no", 401)):
                headers = {"Origin": origin, "Authorization": authorization}
                async with http.get(url, headers=headers) as answer:
                    assert answer.status == status
                    assert answer.headers.get("Access-Control-Allow-Origin") == (origin if may else None)
                    assert "Access-Control-Allow-Credentials" not in answer.headers
