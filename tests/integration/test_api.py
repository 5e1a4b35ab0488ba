"""The operators' HTTP: model, status, evaluations, and who may see them."""

from pathlib import Path

import aiohttp
import numpy as np
from safetensors.numpy import load

from edgeflock.shared.layout import Layout
from tests.hosting import LAYOUT, hosting
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
    layout = Layout.of([("w", (5, 4)), ("norm.running_mean", (3,), True), ("norm.running_var", (3,), True)])
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
    async with hosting(tmp_path, "run.updates=9") as hosted, aiohttp.ClientSession() as http:
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


async def test_a_restarted_server_remembers_its_devices(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, link(hosted.port, name="pi-1") as device:
        await device.join()
        await device.push(update(1, 0))
    async with hosting(tmp_path) as hosted:
        known = hosted.services.registry.devices["pi-1"]
        assert known.updates == 1
        assert known.traffic[0] > 0
        assert known.session is None


async def test_nothing_without_the_token(tmp_path: Path) -> None:
    async with hosting(tmp_path, token="secret") as hosted, aiohttp.ClientSession() as http:
        for path in ("/v1/status", "/v1/evaluations", "/v1/model", "/v1/model.safetensors", "/v1/session"):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
                async with http.get(f"http://127.0.0.1:{hosted.port}{path}", headers=headers) as response:
                    assert response.status == 401
                    assert (await response.json())["code"] == "unauthorized"
        async with http.get(
            f"http://127.0.0.1:{hosted.port}/v1/status", headers={"Authorization": "Bearer secret"}
        ) as response:
            assert response.status == 200
