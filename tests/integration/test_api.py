"""The operators' HTTP: model, status, evaluations, and who may see them."""

import time
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load

from edgeflock.operations.status import print_status
from edgeflock.shared.codecs import sparse
from edgeflock.shared.errors import BaseInFuture
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Facts, Update
from tests.hosting import LAYOUT, Hosted, hosting
from tests.integration.test_reconnect import link, update


async def test_the_model_in_whole_and_in_part(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, aiohttp.ClientSession() as http:
        url = f"http://127.0.0.1:{hosted.port}/v1/model"
        theta = hosted.engine.parameters.theta.astype("<f4").tobytes()
        async with http.get(url) as response:
            assert response.status == 200
            assert await response.read() == theta
            tag = response.headers["ETag"]
        async with http.get(url, headers={"If-None-Match": tag}) as response:
            assert response.status == 304
            assert await response.read() == b""
        for asked, expected, places in (
            ("bytes=4-11", theta[4:12], f"bytes 4-11/{len(theta)}"),
            ("bytes=400-", theta[400:], f"bytes 400-{len(theta) - 1}/{len(theta)}"),
            ("bytes=-8", theta[-8:], f"bytes {len(theta) - 8}-{len(theta) - 1}/{len(theta)}"),
        ):
            async with http.get(url, headers={"Range": asked}) as response:
                assert response.status == 206
                assert response.headers["Content-Range"] == places
                assert await response.read() == expected
        for wrong in ("bytes=9999-", "bytes=7-3", "furlongs=1-2"):
            async with http.get(url, headers={"Range": wrong}) as response:
                assert response.status == 416
        async with link(hosted.port) as device:
            await device.join()
            await device.push(update(1, 0))
        async with http.get(url, headers={"If-None-Match": tag}) as response:
            assert response.status == 200
            assert response.headers["ETag"] != tag
            assert response.headers["X-Edgeflock-Version"] == "1"


async def test_the_model_as_safetensors(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, aiohttp.ClientSession() as http:
        async with http.get(f"http://127.0.0.1:{hosted.port}/v1/model.safetensors") as response:
            tensors = load(await response.read())
        assert {name: tensor.shape for name, tensor in tensors.items()} == {
            tensor.name: tensor.shape for tensor in LAYOUT.tensors
        }
        flat = np.concatenate([tensors[tensor.name].ravel() for tensor in LAYOUT.tensors])
        assert flat.tobytes() == hosted.engine.parameters.theta.tobytes()


async def test_running_statistics_are_served_and_are_no_parameters(tmp_path: Path) -> None:
    layout = Layout.from_shapes(
        [("w", (5, 4)), ("norm.running_mean", (3,), True), ("norm.running_var", (3,), True)]
    )
    async with hosting(tmp_path, layout=layout) as hosted, aiohttp.ClientSession() as http:
        async with http.get(f"http://127.0.0.1:{hosted.port}/v1/model.safetensors") as response:
            tensors = load(await response.read())
        theta = hosted.engine.parameters.theta
        assert tensors["norm.running_mean"].tolist() == theta[20:23].tolist()
        assert tensors["norm.running_var"].tolist() == theta[23:].tolist()
        async with http.get(f"http://127.0.0.1:{hosted.port}/v1/model") as response:
            assert await response.read() == theta.tobytes()
        async with http.get(f"http://127.0.0.1:{hosted.port}/v1/status") as response:
            assert (await response.json())["parameters"] == 20


async def test_status_tells_what_happened(tmp_path: Path) -> None:
    async with hosting(tmp_path, "end.updates=9") as hosted, aiohttp.ClientSession() as http:
        async with link(hosted.port, name="pi-1") as device:
            await device.join()
            await device.push(update(1, 0))
            await device.push(update(2, 0))
            async with http.get(f"http://127.0.0.1:{hosted.port}/v1/status") as response:
                status = await response.json()
        assert (status["version"], status["updates_target"], status["state"]) == (2, 9, "training")
        assert status["parameters"] == LAYOUT.size
        (device_status,) = status["devices"]
        assert device_status["name"] == "pi-1"
        assert device_status["connected"]
        assert device_status["updates"] == 2
        assert device_status["staleness"] == 1
        assert status["dense_bytes"] == 2 * 4 * LAYOUT.size
        assert (
            status["device_ingress"] == device_status["ingress"] > status["records"]["Update"]["ingress"] > 0
        )
        assert status["records"]["Receipt"]["egress"] > 0


async def fetch_status(hosted: Hosted) -> Any:
    url = f"http://127.0.0.1:{hosted.port}/v1/status"
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        return await response.json()


def shown(status: dict[str, Any], width: int) -> list[str]:
    """The lines of `edgeflock status`."""
    console = Console(file=StringIO(), width=width)
    print_status(console, status)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def printed(status: dict[str, Any]) -> dict[str, list[str]]:
    """The table that `edgeflock status` shows: its header and its rows by their first cells."""
    lines = [line.split() for line in shown(status, 200)]
    return {line[0]: line for line in lines if line}


async def test_every_column_of_the_table_is_whole_however_narrow_the_terminal(tmp_path: Path) -> None:
    name = "raspberry-pi-4-on-the-roof"
    async with hosting(tmp_path) as hosted, link(hosted.port, name=name) as device:
        await device.join()
        never = await fetch_status(hosted)
        await device.push(update(1, 0))
        hosted.registry.devices[name].connection.last_heard = time.monotonic() + 3600
        status = await fetch_status(hosted)
        hosted.registry.devices[name].connection.last_heard -= 7200
        silent = await fetch_status(hosted)
    assert printed(silent)[name][1] == "idle"
    assert never["devices"][0]["loss"] is never["devices"][0]["staleness"] is None
    assert printed(never)[name][2:6] == ["0", "0", "-", "-"]
    assert printed(status)[name][1:6] == ["training", "1", "0", "0", "0.500"]
    titles = printed(status)["device"]
    for width in (40, 60, 80):
        lines = shown(status, width)
        heads = [line.split() for line in lines if line.split()[:1] == ["device"]]
        assert [title for head in heads for title in head[1:]] == titles[1:]
        assert sum(name in line for line in lines) == len(heads)
        assert not any("…" in line for line in lines)


async def test_status_tells_how_much_was_compressed(tmp_path: Path) -> None:
    """Of one device three updates of four, of another none: not what was refused or sent twice."""

    def whole(sequence: int, base: int) -> Update:
        values = np.ones(LAYOUT.size, "<f4").tobytes()
        sent = replace(update(sequence, base), index_mode=sparse.DENSE, count=LAYOUT.size)
        return replace(sent, indices=b"", values=values)

    async with hosting(tmp_path) as hosted:
        async with link(hosted.port, name="pi-1") as one, link(hosted.port, name="pi-2") as two:
            await one.join()
            await two.join()
            status = await fetch_status(hosted)
            assert [device["cnc"] for device in (status, *status["devices"])] == [None] * 3
            for number in (1, 2, 3):
                await one.push(update(number, 0))
            assert (await fetch_status(hosted))["cnc"] == 1
            assert "cnc" not in printed(await fetch_status(hosted))["device"]
            await one.push(whole(4, 0))
            await one.push(whole(4, 0))
            with pytest.raises(BaseInFuture):
                await one.push(whole(5, 99))
            await two.push(whole(1, 0))
        status = await fetch_status(hosted)
    assert status["cnc"] == 3 / 5
    assert [
        (device["compressed"], device["uncompressed"], device["cnc"]) for device in status["devices"]
    ] == [(3, 1, 3 / 4), (0, 1, 0)]
    table = printed(status)
    assert " ".join(table["60.0%"]).startswith("60.0% of the updates held a selection of the gradient (CNC")
    assert table["device"][-1] == "cnc"
    assert "CNC" not in "\n".join(shown({**status, "cnc": 0.0}, 200)), "all of each gradient, as it was set"
    assert (table["pi-1"][-1], table["pi-2"][-1]) == ("0.75", "0.00")


async def test_status_tells_what_devices_told_last(tmp_path: Path) -> None:
    """Until they come anew: they may have other data then."""
    stream: Facts = {
        "rate": 149.96,
        "depth": 12345,
        "drops": 7,
        "quarantined": 3,
        "duplicates": 2,
        "age": 0.25,
        "stream_accuracy": 0.8125,
        "stream_loss": 0.5,
        "mood": "\x1b[31m",
    }
    async with hosting(tmp_path) as hosted:
        async with link(hosted.port, name="pi-1") as one, link(hosted.port, name="pi-2") as two:
            await one.join()
            await two.join()
            await two.push(update(1, 0))
            assert printed(await fetch_status(hosted))["device"][-1] == "idle"
            await one.push(replace(update(1, 0), facts={"rate": 1.0, "temperature": 61.5}))
            await one.push(replace(update(2, 0), facts=stream))
            await one.push(update(3, 0))
            status = await fetch_status(hosted)
            reported, nothing = (device["telemetry"] for device in status["devices"])
            assert reported.pop("mood") == stream.pop("mood")
            assert reported == pytest.approx(stream)
            assert nothing == {}
            table = printed(status)
            assert table["device"][-9:] == [
                *("rate", "depth", "drops", "quarantined", "repeats", "age"),
                *("accuracy", "stream", "loss"),
            ]
            assert table["pi-1"][-9:] == [
                *("150.0/s", "12,345", "7", "3", "2", "0.2", "s", "81.2%", "0.500"),
            ]
            assert table["pi-2"][-8:] == ["-"] * 8
            await two.push(replace(update(2, 0), facts={"rate": "fast"}))
            assert printed(await fetch_status(hosted))["pi-2"][-8:] == ["-"] * 8
        async with link(hosted.port, name="pi-1") as one:
            await one.join()
            assert (await fetch_status(hosted))["devices"][0]["telemetry"] == {}


async def test_a_restarted_server_remembers_its_devices(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, link(hosted.port, name="pi-1") as device:
        await device.join()
        await device.push(update(1, 0))
    async with hosting(tmp_path) as hosted:
        known = hosted.registry.devices["pi-1"]
        assert known.statistics.updates == 1
        assert known.connection.traffic[0] > 0
        assert known.connection.session is None


async def test_nothing_for_strangers(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted, aiohttp.ClientSession() as http:
        for path in ("/v1/status", "/v1/evaluations", "/v1/model", "/v1/model.safetensors", "/v1/session"):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
                async with http.get(f"http://127.0.0.1:{hosted.port}{path}", headers=headers) as response:
                    assert response.status == 401
                    assert (await response.json())["code"] == "unauthorized"
        async with http.get(
            f"http://127.0.0.1:{hosted.port}/v1/status",
            headers={"Authorization": f"Bearer {hosted.enrol('pi').credential}"},
        ) as response:
            assert response.status == 200
