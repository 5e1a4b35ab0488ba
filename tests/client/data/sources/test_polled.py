"""JSON of web servers, asked for again and again: of good ones, and of hostile ones."""

import asyncio
import base64
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from edgeflock.client.data.records import Skipped
from edgeflock.client.data.sources import open_source, polled
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.backoff import back_off
from tests.certificates import certificate, serving_with


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polled, "back_off", lambda random: back_off(random, 0.01, 0.02))


class Server:
    """Gives what the test says, one answer after the other; the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[web.Request] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, web.StreamResponse):
            return answer
        if callable(answer):
            response: web.StreamResponse = await answer(request)
            return response
        return web.json_response(answer)


@asynccontextmanager
async def serving(server: Server, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"//127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def first(uri: str, count: int, tally: Skipped | None = None) -> list[int]:
    """The labels of the first `count` samples."""
    got: list[int] = []
    source = open_source(uri, tally)
    while len(got) < count:
        got += (await anext(source)).y.tolist()
    await source.aclose()
    return got


def sample(i: int, **more: object) -> dict[str, object]:
    return {"x": [i, -i], "y": i, **more}


async def test_what_is_new_is_taken_and_what_was_there_is_not() -> None:
    server = Server(sample(1), sample(1), sample(2), [sample(2), sample(3)], [sample(3), sample(4)], [])
    async with serving(server) as place:
        assert await first(f"http:{place}/now?poll=0.01", 4) == [1, 2, 3, 4]


async def test_a_key_tells_what_is_new() -> None:
    server = Server([sample(1, key=7)], [sample(2, key=7), sample(3, key=8)], [])
    async with serving(server) as place:
        assert await first(f"http:{place}/now?poll=0.01", 2) == [1, 3]


async def test_other_servers_words_are_read_by_options_and_other_options_go_to_them() -> None:
    answer = {"data": {"readings": [{"t": 21.5, "air": {"h": 40}, "state": "on"}]}}
    server = Server(answer)
    async with serving(server) as place:
        uri = f"http:{place}/v1?station=7&items=data.readings&x=t,air.h&y=state&names=off,on&unit=a%26b"
        assert await first(uri, 1) == [1]
    assert server.asked[0].path == "/v1"
    assert dict(server.asked[0].query) == {"station": "7", "unit": "a&b"}


async def test_a_password_of_the_environment_or_a_file_logs_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STATION", "se:cret")
    (tmp_path / "token").write_text("abc\n")
    server = Server(sample(1))
    async with serving(server) as place:
        await first(f"http://pi@{place[2:]}/now?password_env=STATION", 1)
        await first(f"http:{place}/now?password_file={tmp_path}/token", 1)
        await first(f"http:{place}/now", 1)
    said = [request.headers.get("Authorization") for request in server.asked]
    assert said == [f"Basic {base64.b64encode(b'pi:se:cret').decode()}", "Bearer abc", None]
    assert all("password" not in request.path_qs for request in server.asked)


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65536)


BROKEN: list[tuple[str, Callable[[], Any]]] = [
    ("unreadable", lambda: web.Response(body=b"\xff\xfe{")),
    ("unreadable", lambda: web.Response(body=b"[" * 100_000)),
    ("unreadable", lambda: web.Response(text="<html>")),
    ("incomplete", lambda: [1, "2", None]),
    ("incomplete", lambda: {"x": [1]}),
    ("of a wrong key", lambda: {"x": [1], "y": 0, "key": {}}),
    ("too large", lambda: endless),
    ("too large", lambda: [0] * 5000),
    (
        "compressed",
        lambda: web.Response(body=zlib.compress(bytes(10_000)), headers={"Content-Encoding": "deflate"}),
    ),
    ("a redirect", lambda: web.Response(status=302, headers={"Location": "http://169.254.169.254/secret"})),
]


@pytest.mark.parametrize(("kind", "make"), BROKEN)
async def test_broken_answers_are_counted_and_asked_for_again(kind: str, make: Callable[[], Any]) -> None:
    tally = Skipped()
    server = Server(make(), sample(5))
    async with serving(server) as place:
        assert await first(f"http:{place}/now?poll=0.01", 1, tally) == [5]
    assert set(tally.counts) == {kind}


async def test_a_server_that_is_away_or_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(web.Response(status=503), web.Response(status=404), sample(1))
    async with serving(server) as place:
        uri = f"http:{place}/now?poll=0.01&token=secret"
        assert await first(uri, 1) == [1]
    assert caplog.text.count("trying again") == 2
    assert "secret" not in caplog.text
    assert "/now answers 404: correct the path; trying again" in caplog.text
    source = open_source(uri)
    waiting = asyncio.ensure_future(anext(source))
    while caplog.text.count("trying again") < 5:
        await asyncio.sleep(0.01)
    assert f"nothing listens at http:{place}/now" in caplog.text
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_tls_trusts_who_the_owner_says_and_nobody_else(tmp_path: Path) -> None:
    path = certificate(tmp_path / "server.pem")
    async with serving(Server(sample(1)), serving_with(path)) as place:
        assert await first(f"https:{place}/now?ca={path}", 1) == [1]
        with pytest.raises(ConfigError, match="certificate that this machine does not trust"):
            await first(f"https:{place}/now", 1)
        name = f"https:{place}/now?ca={path}".replace("127.0.0.1", "localhost")
        with pytest.raises(ConfigError, match="use a name that it is valid for"):
            await first(name, 1)


def test_an_item_is_known_again_however_its_fields_are_ordered() -> None:
    assert polled._name({"a": 1, "b": 2}, "key") == polled._name({"b": 2, "a": 1}, "key")
    assert polled._name({"key": 0, "a": 1}, "key") == polled._name({"key": 0, "a": 2}, "key")
    assert json.loads(polled._name({"meta": {"id": "7"}}, "meta.id")) == "7"


async def test_items_that_are_not_where_they_were_said_to_be_are_counted() -> None:
    tally = Skipped()
    async with serving(Server({"data": 1}, {"data": {"list": sample(1)}})) as place:
        assert await first(f"http:{place}/now?poll=0.01&items=data.list", 1, tally) == [1]
    assert tally.counts == {"incomplete": 1}
