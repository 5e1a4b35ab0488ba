"""Which settings a device has for each of several runs, and what a hostile server's list does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from edgeflock.client.identity import default_path, joined_runs, run_in
from edgeflock.client.run import process
from edgeflock.client.run.several import choose_by_labels, settings_by_run
from edgeflock.client.training.interfaces import WorkerProgress
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.settings.client import ClientSettings


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def join(name: str) -> Path:
    """A device that has joined a run, as far as these functions look."""
    path = default_path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    return path


def test_runs_share_what_the_device_may_use() -> None:
    settings = ClientSettings(server="http://h:1", runs=["a", "b", "a"], cpu="50%", bandwidth="100kB/s")
    both = settings_by_run(settings)
    assert {name: one.server for name, one in both.items()} == {
        "a": "http://h:1/v1/runs/a",
        "b": "http://h:1/v1/runs/b",
    }
    assert [(one.cpu, one.bandwidth, one.runs) for one in both.values()] == [("25%", "50kB/s", [])] * 2


async def test_a_device_of_several_runs_returns_the_sums_of_its_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def train(settings: ClientSettings, *_: object) -> WorkerProgress:
        return WorkerProgress(3, 30, refused=1, duplicates=2, stopped=4, failed=5)

    monkeypatch.setattr(process, "_train", train)
    done = await process.run_client(ClientSettings(server="http://h:1", runs=["a", "b"]))
    assert done == WorkerProgress(6, 60, refused=2, duplicates=4, stopped=8, failed=10)


def test_a_device_that_has_joined_one_run_needs_no_words_and_of_several_a_choice() -> None:
    plain = ClientSettings()
    assert settings_by_run(plain) == {"": plain}
    place = join("a")
    assert settings_by_run(plain)["a"].identity == str(place)
    join("b")
    assert joined_runs() == ["a", "b"]
    with pytest.raises(ConfigError, match="has joined a, b"):
        settings_by_run(plain)
    assert list(settings_by_run(ClientSettings(runs=["b"]))) == ["b"]
    own = ClientSettings(server="http://h:1")
    assert settings_by_run(own) == {"": own}, "an address of its own"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (ClientSettings(server="http://h/v1/runs/a", runs=["b"]), "names a run"),
        (ClientSettings(runs=["../x"]), "no name"),
        (ClientSettings(runs=["a", "b"], keep_model="m.onnx"), "client.keep_model is for one run"),
    ],
)
def test_settings_that_do_not_go_together(settings: ClientSettings, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        settings_by_run(settings)


def test_an_address_names_a_run() -> None:
    assert run_in("https://h:1/v1/runs/a.b-c/") == "a.b-c"
    assert run_in("https://h:1") == run_in("https://h/v1/runs/") == run_in("https://h/v1/runs/a/b") == ""


@asynccontextmanager
async def listing(body: bytes) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/v1/runs", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"x", "in a form"),
        (b"[" * 100_000, "in a form"),
        (b'{"runs": [{"name": "a"}]}', "in a form"),
        (b" " * (1 << 21), "/v1/runs answered with more than"),
        (b'{"runs": [{"name": "../a", "labels": []}]}', "none is open"),
        (
            b'{"runs": [{"name": "a", "labels": ["x=\\u001b[2J"]}, {"name": "b", "labels": []}]}',
            r"a \(x=\\x1b",
        ),
        (b'{"runs": [{"name": "a", "labels": ["site=south"]}]}', r"none of them fits .*: a \(site=south\)"),
    ],
)
async def test_a_hostile_list_ends_in_one_line(body: bytes, reason: str) -> None:
    async with listing(body) as url:
        with pytest.raises(EdgeflockError, match=reason) as raised:
            await choose_by_labels(ClientSettings(server=url, labels=["site=north"]))
        assert str(raised.value).isprintable()


async def test_a_run_without_labels_is_for_every_device_if_it_is_alone() -> None:
    async with listing(b'{"runs": [{"name": "a", "labels": []}]}') as url:
        chosen = await choose_by_labels(ClientSettings(server=url, labels=["site=north"]))
    assert run_in(chosen.server) == "a"
