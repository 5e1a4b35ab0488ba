"""The list of runs of a server that hosts several, as commands show it."""

import asyncio
import io
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from rich.console import Console

from edgeflock.operations.runs import list_runs, print_runs, run_addresses
from edgeflock.operations.top import TopOptions, sources
from edgeflock.shared.errors import ConfigError, EdgeflockError

EMPTY = ("model", "version", "accuracy", "loss", "devices", "ingress", "egress")
ROWS: list[dict[str, Any]] = [
    {
        "name": "a",
        "state": "running",
        "reason": "",
        "labels": ["site=north"],
        "model": "edgeflock.client.zoo:DigitsCNN",
        "version": 1234,
        "accuracy": 0.9,
        "loss": 0.5,
        "devices": 2,
        "ingress": 1500,
        "egress": 2500,
    },
    {"name": "b", "state": "hangs", "reason": "no\x1b[2J answer", "labels": [], **dict.fromkeys(EMPTY)},
]


def serving(document: dict[str, Any]) -> TestServer:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(document)

    app = web.Application()
    app.router.add_get("/v1/runs", answer)
    return TestServer(app)


def test_a_line_for_each_run_and_why_it_does_not_run() -> None:
    out = io.StringIO()
    print_runs(Console(file=out, width=200), ROWS)
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines[1] == "a running DigitsCNN 1,234 90.00% 0.5000 2 1.5 kB 2.5 kB site=north".split()
    assert lines[2] == "b hangs - - - - - - - -".split()
    assert lines[3:] == [["b:", "no?[2J", "answer"]], "what a server says moves no cursor"


async def test_top_opens_each_run_of_a_server_of_several() -> None:
    async with serving({"runs": ROWS}) as server:
        url = str(server.make_url("/")).rstrip("/")
        assert await asyncio.to_thread(list_runs, url, "") == ROWS
        options = TopOptions([url], [""], 1.0, None, [], 1.0, "")
        made = await asyncio.to_thread(sources, options, None)
        assert [one.name for one in made] == ["a", "b"]
        addresses = [f"{url}/v1/runs/a", f"{url}/v1/runs/b"]
        assert await asyncio.to_thread(run_addresses, f"{url}/", "") == addresses


async def test_a_server_of_one_run_is_itself() -> None:
    async with serving({"devices": []}) as server:
        url = str(server.make_url("/"))
        assert await asyncio.to_thread(run_addresses, url, "") == [url]
        with pytest.raises(EdgeflockError, match="hosts no folder of runs"):
            await asyncio.to_thread(list_runs, url, "")
        with pytest.raises(ConfigError):
            await asyncio.to_thread(list_runs, "ftp://x", "")
    async with TestServer(web.Application()) as server:
        with pytest.raises(EdgeflockError, match="the server has one run: edgeflock status shows it"):
            await asyncio.to_thread(list_runs, str(server.make_url("/")), "")


@pytest.mark.parametrize(
    "rows", [[1], [{}], [{**ROWS[0], "version": "12"}], [{**ROWS[0], "labels": 1}], {"a": 1}], ids=str
)
def test_a_list_in_another_form_is_an_error_of_a_line(rows: Any) -> None:
    with pytest.raises(EdgeflockError, match="in a form that this Edgeflock does not know"):
        print_runs(Console(file=io.StringIO()), rows)


async def test_rows_without_a_name_are_no_addresses() -> None:
    for rows in ([1], [{"name": 1}]):
        async with serving({"runs": rows}) as server:
            url = str(server.make_url("/"))
            assert await asyncio.to_thread(run_addresses, url, "") == [url]
            with pytest.raises(EdgeflockError, match="without names"):
                await asyncio.to_thread(list_runs, url, "")
