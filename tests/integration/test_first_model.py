"""Weights that devices must load: once, however often the line drops, and nothing but what was announced."""

import asyncio
import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import aiohttp
import numpy as np
import pytest

from edgeflock.client.identity import ClientIdentity
from edgeflock.client.run import run_client
from edgeflock.client.training.replica import Replica
from edgeflock.client.transport import Link
from edgeflock.client.transport.first_model import cached_first_model, load_first_model
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import Malformed, Unauthorized
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Weights
from edgeflock.shared.model.torch_module import FlatModule
from edgeflock.shared.protocol.messages import Model, Update
from edgeflock.shared.settings.client import ClientSettings
from tests.hosting import hosting, initial_theta
from tests.integration.held import LOSSY, agree
from tests.integration.test_reconnect import link
from tests.proxy import Proxy, proxying

LARGE = Layout.from_shapes([("kernel", (500, 800)), ("bias", (800,))])
HEADS = 2000
"""More than the headers of a request and its answer take."""


async def begun(device: Link, directory: Path) -> Replica:
    """What a worker does when it joins."""
    welcome = await device.join()
    replica = Replica(LARGE, welcome.start)
    if welcome.weights is not None:
        kept = cached_first_model(directory, welcome.weights, "pi")
        model = await load_first_model(device.downloads.load, kept, welcome.weights, LARGE, asyncio.to_thread)
        if model is not None:
            replica.take(model)
    replica.take(await device.pull(replica.version, replica.held))
    return replica


def joining(port: int, name: str = "pi", identity: ClientIdentity | None = None) -> Link:
    device = link(port, name, identity)
    device.announce_layout(LARGE.digest)
    return device


def cut_every(proxy: Proxy, octets: int, times: int) -> list[int]:
    """Drop the line after so many bytes more, again and again; the bytes that are lost with it each time."""
    due = proxy.downstream + octets
    lost: list[int] = []

    def cut(chunk: bytes) -> bool:
        nonlocal due
        if proxy.downstream < due or len(lost) == times:
            return False
        due = proxy.downstream + octets
        lost.append(len(chunk))
        return True

    proxy.cut_downstream = cut
    return lost


@pytest.mark.parametrize("mode", ["downlink.mode=exact", LOSSY])
async def test_a_line_that_drops_again_and_again_costs_little_more_than_one_that_holds(
    mode: str, tmp_path: Path
) -> None:
    async with hosting(tmp_path, mode, layout=LARGE, offered=True) as hosted, proxying(hosted.port) as proxy:
        offered = hosted.engine.outlet.first_model
        assert offered is not None
        async with joining(proxy.port) as device:
            await device.join()
            times = 6
            lost = cut_every(proxy, offered.size // 8, times)
            replica = await begun(device, tmp_path / "kept")
            assert proxy.connections > times
            assert len(lost) == times
            assert proxy.downstream - sum(lost) < offered.size + (times + 2) * HEADS, "what came is kept"
            if mode == LOSSY:
                assert offered.mode == values.CODINGS["int8"].mode
                assert agree(hosted.engine, 1, replica)
            else:
                assert replica.theta.tobytes() == initial_theta(LARGE.size).tobytes()
            before = proxy.downstream
            again = await begun(device, tmp_path / "kept")
            assert again.theta.tobytes() == replica.theta.tobytes()
            assert proxy.downstream - before < HEADS, "it is there"


async def test_its_bytes_are_counted_as_those_of_the_device(tmp_path: Path) -> None:
    async with hosting(tmp_path, layout=LARGE, offered=True) as hosted, proxying(hosted.port) as proxy:
        async with joining(proxy.port) as device:
            await begun(device, tmp_path / "kept")
            assert hosted.engine.outlet.first_model is not None
            counted = hosted.registry.devices["pi"].connection.traffic[1]
            size = hosted.engine.outlet.first_model.size
            assert size < counted == proxy.downstream == hosted.traffic.total.egress


async def test_without_a_token_there_is_nothing(tmp_path: Path) -> None:
    async with hosting(tmp_path, layout=LARGE, offered=True, closed=True) as hosted:
        url = f"http://127.0.0.1:{hosted.port}/v1/start"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            assert response.status == 401
        offered = hosted.engine.outlet.first_model
        assert offered is not None
        async with joining(
            hosted.port, identity=replace(hosted.enrol("pi"), credential="efd1.wrong")
        ) as device:
            with pytest.raises(Unauthorized, match="edgeflock client join"):
                await device.downloads.load(cached_first_model(tmp_path / "kept", offered, "pi"))
        async with joining(hosted.port, "jetson", hosted.enrol("jetson")) as device:
            assert (await begun(device, tmp_path / "kept")).version == 0


async def ask(port: int, method: str = "GET", **headers: str) -> tuple[int, Any, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, f"http://127.0.0.1:{port}/v1/start", headers=named) as response,
    ):
        return response.status, response.headers, await response.read()


async def test_parts_of_it(tmp_path: Path) -> None:
    async with hosting(tmp_path, offered=True) as hosted:
        offered = hosted.engine.outlet.first_model
        assert offered is not None
        status, headers, whole = await ask(hosted.port)
        assert (status, len(whole)) == (200, offered.size)
        assert hashlib.sha256(whole).digest() == offered.digest
        etag = headers["ETag"]
        assert (etag, headers["Accept-Ranges"]) == (f'"{offered.digest.hex()}"', "bytes")
        assert headers["Content-Length"] == str(offered.size)
        status, headers, part = await ask(hosted.port, Range="bytes=100-149", If_Range=etag)
        assert (status, part) == (206, whole[100:150])
        assert headers["Content-Range"] == f"bytes 100-149/{offered.size}"
        assert (await ask(hosted.port, Range="bytes=100-"))[2] == whole[100:]
        assert (await ask(hosted.port, Range="bytes=100-", If_Range='"another"'))[::2] == (200, whole)
        assert (await ask(hosted.port, Range=f"bytes={offered.size}-"))[0] == 416
        assert (await ask(hosted.port, If_None_Match=etag))[::2] == (304, b"")
        status, headers, body = await ask(hosted.port, "HEAD")
        assert (status, headers["Content-Length"], body) == (200, str(offered.size), b"")


async def test_where_devices_make_it_there_is_none(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted:
        assert (await ask(hosted.port))[0] == 404
        offered = Weights(bytes(32), 100, 0, load=True)
        async with joining(hosted.port) as device:
            assert not await device.downloads.load(cached_first_model(tmp_path / "kept", offered, "pi"))


async def test_a_server_that_has_another_one_by_now_is_pulled_from(tmp_path: Path) -> None:
    """Its settings changed between the Welcome and the load."""
    async with hosting(tmp_path, layout=LARGE, offered=True) as hosted:
        offered = hosted.engine.outlet.first_model
        assert offered is not None
        async with joining(hosted.port) as device:
            hosted.engine.outlet.first_model = offered._replace(digest=bytes(32))
            kept = cached_first_model(tmp_path / "kept", offered, "pi")
            assert (
                await load_first_model(device.downloads.load, kept, offered, LARGE, asyncio.to_thread) is None
            )


async def test_a_server_that_lies_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(tmp_path, layout=LARGE, offered=True) as hosted, proxying(hosted.port) as proxy:
        offered = hosted.engine.outlet.first_model
        assert offered is not None
        octets = (tmp_path / "first-model").read_bytes()
        async with joining(proxy.port) as device:
            hosted.engine.outlet.first_model = offered._replace(size=offered.size + 1)
            with pytest.raises(
                Malformed, match=f"announced a first model of {offered.size} bytes, and sends"
            ):
                await device.downloads.load(cached_first_model(tmp_path / "kept", offered, "pi"))
            hosted.engine.outlet.first_model = offered._replace(size=5 * LARGE.size)
            with pytest.raises(Malformed, match="takes at most"):
                await begun(device, tmp_path / "kept")
            hosted.engine.outlet.first_model = offered
            (tmp_path / "first-model").write_bytes(octets[:-1] + b"!")
            before = proxy.downstream
            with caplog.at_level(logging.WARNING), pytest.raises(Malformed, match=r"twice.*\(SHA-256\)"):
                await begun(device, tmp_path / "kept")
            assert 2 * offered.size < proxy.downstream - before < 2 * offered.size + 3 * HEADS
            (tmp_path / "first-model").write_bytes(octets)
            assert (await begun(device, tmp_path / "kept")).version == 0


def moving(sequence: int, base: int, far: float) -> Update:
    """An update that moves every parameter."""
    numbers = np.random.default_rng(sequence).standard_normal(LARGE.size).astype(np.float32) * far
    mode = values.CODINGS["f16"].mode
    octets = values.encode(numbers, LARGE.counts(None), "f16")
    return Update(sequence, base, sparse.DENSE, mode, LARGE.size, b"", octets, 0.5, 10, pull=False)


def touching(sequence: int, base: int, count: int) -> Update:
    """An update of so many parameters."""
    random = np.random.default_rng(sequence)
    where = np.sort(random.choice(LARGE.size, count, replace=False))
    octets = random.standard_normal(count).astype("<f4").tobytes()
    indices, mode = sparse.encode(where, LARGE.size), values.CODINGS["f32"].mode
    return Update(sequence, base, sparse.GOLOMB, mode, count, indices, octets, 0.5, 10, pull=False)


async def test_who_joins_late_takes_the_shorter_way(tmp_path: Path) -> None:
    """Version 0 and a difference, as long as they are shorter than the whole model; else that."""
    async with hosting(tmp_path, layout=LARGE, offered=True) as hosted:
        async with joining(hosted.port) as pi, joining(hosted.port, "jetson") as other:
            at_first = await begun(pi, tmp_path / "kept")
            assert list((tmp_path / "kept").iterdir()), "it was loaded"
            await other.join()
            await other.push(touching(1, 0, LARGE.size // 5))
            theta = hosted.engine.theta()[1]
            assert theta.tobytes() != at_first.theta.tobytes()
            before = hosted.traffic.sent[Model]
            again = await begun(pi, tmp_path / "kept")
            difference = hosted.traffic.sent[Model] - before
            assert again.theta.tobytes() == theta.tobytes()
            late = await begun(pi, tmp_path / "empty")
            whole = hosted.traffic.sent[Model] - before - difference
            assert late.theta.tobytes() == theta.tobytes()
            assert not list((tmp_path / "empty").iterdir()), "nothing was loaded"
            assert hosted.engine.outlet.first_model is not None
            assert difference < whole < hosted.engine.outlet.first_model.size + difference


async def test_in_a_lossy_run_too(tmp_path: Path) -> None:
    async with hosting(tmp_path, LOSSY, layout=LARGE, offered=True) as hosted:
        engine = hosted.engine
        async with joining(hosted.port) as other:
            await other.join()
            ways = []
            for sequence, far in enumerate((0.0, 1e-6, 100.0)):
                if sequence:
                    await other.push(moving(sequence, sequence - 1, far))
                weights = engine.outlet.weights()
                assert weights is not None
                ways.append(weights.load)
            assert ways == [True, True, False]
            await begun(other, tmp_path / "kept")
            assert not list((tmp_path / "kept").iterdir())


async def test_after_a_restart_of_the_server_too(tmp_path: Path) -> None:
    """An exact one knows no longer what has changed since version 0, a lossy one does."""
    for mode, load in (("downlink.mode=exact", False), (LOSSY, True)):
        async with hosting(tmp_path / mode, mode, layout=LARGE, offered=True) as hosted:
            offered = hosted.engine.outlet.first_model
            async with joining(hosted.port) as device:
                await begun(device, tmp_path / mode / "kept")
                await device.push(moving(1, 0, 1e-6))
        async with hosting(tmp_path / mode, mode, layout=LARGE, offered=True) as hosted:
            assert hosted.engine.outlet.first_model == offered, "the same file"
            weights = hosted.engine.outlet.weights()
            assert weights is not None
            assert weights.load == load
            async with joining(hosted.port) as device:
                replica = await begun(device, tmp_path / mode / "kept")
                assert replica.version == 1
                if mode == LOSSY:
                    assert agree(hosted.engine, 1, replica)
                else:
                    assert replica.theta.tobytes() == hosted.engine.theta()[1].tobytes()


@pytest.mark.slow
@pytest.mark.usefixtures("exports_in_this_process")
@pytest.mark.parametrize("backend", ["torch", "onnx"])
async def test_a_client_loads_it_and_trains(backend: Literal["torch", "onnx"], tmp_path: Path) -> None:
    digits = "edgeflock.client.zoo:DigitsCNN"
    settings = [
        LOSSY,
        f"model.module={digits}",
        "model.data=digits:",
        "end.updates=2",
        "coordination.learning_rate=1e-4",
    ]
    layout = FlatModule(digits, "cross_entropy").layout
    async with hosting(tmp_path, *settings, layout=layout, offered=True) as hosted:
        client = ClientSettings(
            server=f"http://127.0.0.1:{hosted.port}",
            name="pi",
            backend=backend,
            directory=str(tmp_path / "kept"),
        )
        progress = await run_client(client)
        offered = hosted.engine.outlet.first_model
        assert offered is not None
        assert progress.updates == 2
        (file,) = (tmp_path / "kept").iterdir()
        assert hashlib.sha256(file.read_bytes()).digest() == offered.digest
        assert hosted.traffic.sent[Model] < HEADS, "an empty difference"


async def test_a_device_is_charged_for_what_it_is_sent(tmp_path: Path) -> None:
    """Else one that asks for headers alone would make all devices wait."""
    limits = "limits.device_rate=100000"
    async with hosting(tmp_path, limits, layout=LARGE, offered=True, closed=True) as hosted:
        pi, limiter = hosted.enrol("pi"), hosted.rate_limiters.get("pi")
        now = asyncio.get_running_loop().time
        headers = {"Authorization": f"Bearer {pi.credential}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            for _ in range(3):
                async with http.head(f"{hosted.url}/v1/start") as head:
                    assert (head.content_length or 0) > 1_000_000
            assert limiter.wait_seconds(now()) <= 0
            async with http.get(f"{hosted.url}/v1/start") as whole:
                assert len(await whole.read()) == head.content_length
            async with asyncio.timeout(60):
                while limiter.wait_seconds(now()) <= 0:  # the server counts after its last byte
                    await asyncio.sleep(0.01)
