"""A server's graphs: made once, in a process of their own, and served to whoever may see the run."""

import asyncio
import gzip
import os
import signal
import threading
from contextlib import suppress
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from edgeflock.server.training_graph import served
from edgeflock.server.training_graph.export import export_model
from edgeflock.server.training_graph.served import GraphStore
from edgeflock.shared.errors import NotExportable
from edgeflock.shared.settings.model import ModelSettings
from tests.hosting import hosting
from tests.server.training_graph import models

NETS = "tests.server.training_graph.models:"
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _exports_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not: here they run as a server runs them. Their process finds the models, too."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def data(tmp_path: Path) -> str:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((9, 6)).astype(np.float32), random.integers(0, 4, 9)
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return f"npz:{tmp_path / 'data.npz'}"


class Started:
    """The processes that were started for exports."""

    def __init__(self) -> None:
        self.processes: list[asyncio.subprocess.Process] = []


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    started = Started()
    real = asyncio.create_subprocess_exec

    async def start(*command: str, **options: Any) -> asyncio.subprocess.Process:
        process = await real(*command, **options)
        started.processes.append(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    return started


def gone(pid: int) -> bool:
    """Whether no such process is left, not even a dead one."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


@pytest.mark.slow
async def test_it_serves_the_model_s_graphs(tmp_path: Path, data: str, started: Started) -> None:
    """To who has joined; compressed to who likes; once; and answers others meanwhile.

    They are those of data of the shape that it knows. Another process makes them, with other hashes.
    """
    settings = f"model.module={NETS}dense", "model.input=6"
    async with hosting(tmp_path, *settings, closed=True) as hosted:
        url = f"http://127.0.0.1:{hosted.port}/v1"
        allowed = {"Authorization": f"Bearer {hosted.enrol('pi').credential}"}
        async with aiohttp.ClientSession(
            auto_decompress=False, skip_auto_headers=["Accept-Encoding"]
        ) as http:
            async with http.get(f"{url}/graphs/step") as response:
                assert response.status == 401
                assert (await response.json())["code"] == "unauthorized"
            assert not started.processes, "nobody without a token starts an export"

            async def get(path: str, **headers: str) -> tuple[int, bytes, Any]:
                async with http.get(f"{url}/{path}", headers=allowed | headers) as response:
                    return response.status, await response.read(), response.headers

            asked = [asyncio.create_task(get(f"graphs/{kind}")) for kind in ("step", "evaluation", "step")]
            while not started.processes:
                await asyncio.sleep(0)
            (process,) = started.processes
            process.send_signal(signal.SIGSTOP)
            assert (await get("status"))[0] == 200, "the server answers while it exports"
            assert not any(task.done() for task in asked)
            process.send_signal(signal.SIGCONT)
            step, evaluation, again = await asyncio.gather(*asked)
            assert len(started.processes) == 1

            held_out = np.load(tmp_path / "data.npz")
            wanted = export_model(
                f"{NETS}dense", "cross_entropy", held_out["x_test"][:8], held_out["y_test"][:8]
            )
            assert (step[0], step[1]) == (200, wanted.step)
            assert (evaluation[0], evaluation[1]) == (200, wanted.evaluation)
            assert again[1] == step[1]
            tag = step[2]["ETag"]
            assert tag == f'"{sha256(wanted.step).hexdigest()}"'
            assert evaluation[2]["ETag"] != tag

            status, octets, headers = await get("graphs/step", **{"If-None-Match": tag})
            assert (status, octets, headers["ETag"]) == (304, b"", tag)
            status, octets, _ = await get("graphs/evaluation", **{"If-None-Match": tag})
            assert (status, octets) == (200, wanted.evaluation)

            status, octets, headers = await get("graphs/step", **{"Accept-Encoding": "gzip"})
            assert (status, headers["Content-Encoding"]) == (200, "gzip")
            assert gzip.decompress(octets) == wanted.step
            assert len(octets) < len(wanted.step) / 2
            assert "Content-Encoding" not in step[2]

            for other in ("graphs/other", "graphs/", "graphs/step/more"):
                assert (await get(other))[0] == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "uri", "says"),
    [
        (f"{NETS}dense", "", "model.input"),
        (f"{NETS}by_number", "{data}", "must not depend on the values"),
    ],
    ids=["no data", "not exportable"],
)
async def test_it_says_why_there_is_none(
    module: str, uri: str, says: str, tmp_path: Path, data: str, started: Started
) -> None:
    settings = f"model.module={module}", f"model.data={uri.format(data=data)}"
    async with hosting(tmp_path, *settings) as hosted, aiohttp.ClientSession() as http:
        for kind in ("step", "evaluation"):
            async with http.get(f"http://127.0.0.1:{hosted.port}/v1/graphs/{kind}") as response:
                assert response.status == 422
                answer = await response.json()
            assert answer["code"] == "not-exportable"
            assert says in answer["detail"]
    assert len(started.processes) == (1 if uri else 0)


@pytest.mark.parametrize(
    ("loss", "own"),
    [
        pytest.param("cross_entropy", False, marks=pytest.mark.long),
        pytest.param("mse", False, marks=pytest.mark.long),
        pytest.param("bce", True, marks=pytest.mark.long),
    ],
    ids=["cross_entropy", "mse", "bce, of a module that only this process can build"],
)
async def test_a_shape_is_enough(loss: str, own: bool, data: str, tmp_path: Path, started: Started) -> None:
    """The graph is the one of data of that shape."""
    module, make = ("__main__:Own", models.dense) if own else (f"{NETS}dense", None)
    store = GraphStore(ModelSettings(module=module, loss=loss, data="", input=[6]), make)
    made = [(await store.get(kind)).octets for kind in ("step", "evaluation")]
    assert len(started.processes) == (0 if own else 1)
    assert 0.0 < store.wait_end(inf) < inf
    held_out = np.load(tmp_path / "data.npz")
    y = held_out["y_test"] if loss == "cross_entropy" else np.ones((9, 4), np.float32)
    wanted = export_model(f"{NETS}dense", loss, held_out["x_test"], y)
    assert made == [wanted.step, wanted.evaluation]


async def test_devices_wait_until_the_graphs_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_export", lambda *_: {"step": b"step", "evaluation": b"evaluation"})
    store = GraphStore(ModelSettings(module="__main__:Own", data="", input=[6]), models.dense)
    assert store.wait_end(inf) == 0.0
    assert (await store.get("step")).octets == b"step"
    assert 0.0 < store.wait_end(inf) < inf
    await store.close()


async def test_whoever_stops_waits_for_an_export_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def export(*_: object) -> dict[str, bytes]:
        begun.set()
        goes_on.wait()
        return {}

    monkeypatch.setattr(served, "_export", export)
    store = GraphStore(ModelSettings(module="__main__:Own", data="", input=[6]), models.dense)
    assert store.wait_end(5.0) == 0.0
    asking = asyncio.create_task(store.get("step"))
    await asyncio.to_thread(begun.wait)
    assert store.wait_end(5.0) == 5.0
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    assert not closing.done()
    goes_on.set()
    await closing
    assert not [thread.name for thread in threading.enumerate() if "export" in thread.name]
    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"input": [7]}, r"model.input = \[7\] does not fit model.module"),
        ({"data": "npz:nowhere.npz"}, r"nowhere\.npz"),
    ],
    ids=["no such shape", "no file"],
)
async def test_data_that_do_not_fit(chosen: dict[str, Any], says: str, exports_in_this_process: None) -> None:
    store = GraphStore(ModelSettings.model_validate({"module": f"{NETS}dense", "data": "", **chosen}))
    for kind in ("step", "evaluation"):
        with pytest.raises(NotExportable, match=says):
            await store.get(kind)


async def test_the_server_s_end_is_the_export_s(tmp_path: Path, data: str, started: Started) -> None:
    settings = f"model.module={NETS}dense", f"model.data={data}"
    async with aiohttp.ClientSession() as http, hosting(tmp_path, *settings) as hosted:
        asking = asyncio.create_task(http.get(f"http://127.0.0.1:{hosted.port}/v1/graphs/step"))
        while not started.processes:
            await asyncio.sleep(0)
        (process,) = started.processes
        assert not gone(process.pid)
    assert process.returncode is not None
    assert gone(process.pid)
    with suppress(aiohttp.ClientError):
        await asking


@pytest.mark.slow
async def test_who_hangs_up_ends_it_for_nobody_else(data: str, started: Started) -> None:
    store = GraphStore(ModelSettings(module=f"{NETS}by_number", data=data))
    first, second = (asyncio.create_task(store.get("step")) for _ in range(2))
    while not started.processes:
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(NotExportable, match="by_number: cannot be traced"):
        await second
    assert first.cancelled()
    assert len(started.processes) == 1
    await store.close()


async def test_an_export_that_dies_is_reported(data: str, started: Started) -> None:
    """Of memory, say."""
    store = GraphStore(ModelSettings(module=f"{NETS}dense", data=data))
    asking = asyncio.create_task(store.get("step"))
    while not started.processes:
        await asyncio.sleep(0)
    started.processes[0].kill()
    for task in (asking, asyncio.create_task(store.get("evaluation"))):
        with pytest.raises(NotExportable, match="the export failed"):
            await task
    assert len(started.processes) == 1
    await store.close()


async def test_a_store_that_was_never_asked_closes(started: Started) -> None:
    await GraphStore(ModelSettings()).close()
    assert not started.processes
