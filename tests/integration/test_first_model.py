"""Weights that devices must load: once, however often the line drops, and nothing but what was announced."""

import asyncio
import hashlib
import logging
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from edgeflock.client.first_model import Kept, first_model
from edgeflock.client.training.replica import Replica
from edgeflock.client.transport import Link
from edgeflock.server.engine import Engine
from edgeflock.shared.codecs import packed, values
from edgeflock.shared.errors import Malformed, Unauthorized
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.weights import Weights
from edgeflock.shared.protocol.messages import Model
from tests.hosting import hosting, initial_theta
from tests.integration.held import LOSSY, agree
from tests.integration.test_reconnect import link, update
from tests.proxy import Proxy, proxying

LARGE = Layout.of([("kernel", (500, 800)), ("bias", (800,))])
HEADS = 2000
"""More than the headers of a request and its answer take."""


async def begun(device: Link, directory: Path, layout: Layout = LARGE) -> Replica:
    """What a worker does when it joins."""
    welcome = await device.join()
    replica = Replica(layout, welcome.start)
    if welcome.weights is not None:
        kept = Kept(directory, welcome.weights, "pi")
        model = await first_model(device.load, kept, welcome.weights, layout, asyncio.to_thread)
        if model is not None:
            replica.take(model)
    replica.take(await device.pull(replica.version, replica.held))
    return replica


def joining(port: int, layout: Layout = LARGE, token: str = "") -> Link:
    device = link(port, token=token)
    device.speak_as(layout.digest)
    return device


def cut_every(proxy: Proxy, octets: int, times: int) -> None:
    """Drop the line after so many bytes more, again and again."""
    due, left = proxy.downstream + octets, times

    def cut(chunk: bytes) -> bool:
        nonlocal due, left
        if proxy.downstream < due or not left:
            return False
        due, left = proxy.downstream + octets, left - 1
        return True

    proxy.cut_downstream = cut


@pytest.mark.parametrize("mode", ["downlink.mode=exact", LOSSY])
async def test_a_line_that_drops_again_and_again_costs_little_more_than_one_that_holds(
    mode: str, tmp_path: Path
) -> None:
    async with hosting(tmp_path, mode, layout=LARGE, offered=True) as hosted, proxying(hosted.port) as proxy:
        offered = hosted.engine.offered
        assert offered is not None
        async with joining(proxy.port) as device:
            await device.join()
            times = 6
            cut_every(proxy, offered.size // 8, times)
            replica = await begun(device, tmp_path / "kept")
            assert proxy.connections > times
            # What the proxy swallowed with each cut never arrived; nothing else is sent again.
            assert proxy.downstream < offered.size + times * ((1 << 16) + HEADS) + HEADS
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
            assert hosted.engine.offered is not None
            counted = hosted.registry.devices["pi"].connection.traffic[1]
            assert hosted.engine.offered.size < counted == proxy.downstream == hosted.traffic.total.egress


async def test_without_a_token_there_is_nothing(tmp_path: Path) -> None:
    async with hosting(tmp_path, layout=LARGE, offered=True, token="secret") as hosted:
        url = f"http://127.0.0.1:{hosted.port}/v1/start"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            assert response.status == 401
        offered = hosted.engine.offered
        assert offered is not None
        async with joining(hosted.port, token="wrong") as device:
            with pytest.raises(Unauthorized, match=r"client\.token"):
                await device.load(Kept(tmp_path / "kept", offered, "pi"))
        async with joining(hosted.port, token="secret") as device:
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
        offered = hosted.engine.offered
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
            assert not await device.load(Kept(tmp_path / "kept", offered, "pi"))


async def test_a_server_that_has_another_one_by_now_is_pulled_from(tmp_path: Path) -> None:
    """Its settings changed between the Welcome and the load."""
    async with hosting(tmp_path, layout=LARGE, offered=True) as hosted:
        offered = hosted.engine.offered
        assert offered is not None
        async with joining(hosted.port) as device:
            hosted.engine.offered = offered._replace(digest=bytes(32))
            kept = Kept(tmp_path / "kept", offered, "pi")
            assert await first_model(device.load, kept, offered, LARGE, asyncio.to_thread) is None


async def test_a_server_that_lies_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(tmp_path, layout=LARGE, offered=True) as hosted, proxying(hosted.port) as proxy:
        offered = hosted.engine.offered
        assert offered is not None
        octets = (tmp_path / "first-model").read_bytes()
        async with joining(proxy.port) as device:
            hosted.engine.offered = offered._replace(size=offered.size + 1)
            with pytest.raises(
                Malformed, match=f"announced a first model of {offered.size} bytes, and sends"
            ):
                await device.load(Kept(tmp_path / "kept", offered, "pi"))
            hosted.engine.offered = offered._replace(size=5 * LARGE.size)
            with pytest.raises(Malformed, match="takes at most"):
                await begun(device, tmp_path / "kept")
            hosted.engine.offered = offered
            (tmp_path / "first-model").write_bytes(octets[:-1] + b"!")
            before = proxy.downstream
            with caplog.at_level(logging.WARNING), pytest.raises(Malformed, match=r"twice.*\(SHA-256\)"):
                await begun(device, tmp_path / "kept")
            assert 2 * offered.size < proxy.downstream - before < 2 * offered.size + 3 * HEADS
            (tmp_path / "first-model").write_bytes(octets)
            assert (await begun(device, tmp_path / "kept")).version == 0


def current(engine: Engine) -> Model:
    return engine.model(None)


async def test_who_joins_late_takes_the_shorter_way(tmp_path: Path) -> None:
    """A difference to version 0 as long as it and version 0 are shorter than the whole model, else that."""
    async with hosting(tmp_path, layout=LARGE, offered=True) as hosted, proxying(hosted.port) as proxy:
        offered, whole = hosted.engine.offered, len(current(hosted.engine).values)
        assert offered is not None
        async with joining(proxy.port) as device, joining(hosted.port) as other:
            await other.join()
            await begun(device, tmp_path / "kept")
        async with link(proxy.port, "jetson") as late:
            late.speak_as(LARGE.digest)
            hosted.engine.offered = offered._replace(size=whole)  # as if it could not be packed
            before = proxy.downstream
            welcome = await late.join()
            assert welcome.weights is not None
            assert welcome.weights.load, "and it goes on where it breaks off"
            hosted.engine.offered = offered._replace(size=2 * whole)
            welcome = await late.join()
            assert welcome.weights is not None
            assert not welcome.weights.load
            replica = await begun(late, tmp_path / "other")
            assert replica.theta.tobytes() == initial_theta(LARGE.size).tobytes()
            assert whole < proxy.downstream - before < whole + 4 * HEADS
