"""Servers and gateways that hang: real processes under SIGSTOP, which keep their connections open."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import aiohttp
import numpy as np
import pytest

from benchmarks.hanging import gateway, leader, process, shares
from benchmarks.updates import LAYOUT, random_update
from edgeflock.client.transport import Link
from edgeflock.shared.errors import BaseExpired, BaseInFuture
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from tests.ports import lasting

UPDATE = random_update(LAYOUT, 0.01, "codebook4", np.random.default_rng(0))
SOON = 2.0
"""Seconds for HANG_SECONDS and HOME_SECONDS, so that a test is over soon; nothing depends on it."""


class Device:
    """Pushes, and counts."""

    def __init__(self, link: Link, version: int) -> None:
        self.link, self.version, self.sequence = link, version, 0

    async def push(self) -> int:
        """The version that the next update made."""
        self.sequence += 1
        while True:
            try:
                update = replace(UPDATE, sequence=self.sequence, base=self.version)
                self.version = (await self.link.push(update)).version
                return self.version
            except (BaseExpired, BaseInFuture):
                self.version = (await self.link.pull(None)).version


@asynccontextmanager
async def device(ports: list[int], name: str = "pi") -> AsyncIterator[Device]:
    urls = ",".join(f"http://127.0.0.1:{port}" for port in ports)
    hello = Hello(PROTOCOL, name, LAYOUT.digest, {})
    async with Link(urls, None, hello, Random(0), hang_seconds=SOON, home_seconds=SOON) as link:
        yield Device(link, (await link.join()).version)


@pytest.mark.slow
async def test_a_device_leaves_a_gateway_that_hangs_and_returns_to_it(tmp_path: Path) -> None:
    """With one receipt for each update: the leader gives the gateway up, and its device's name is free."""
    at, ports = lasting(), [lasting(), lasting()]
    async with AsyncExitStack() as opened:
        await opened.enter_async_context(leader(tmp_path, at))
        through = {port: await opened.enter_async_context(gateway(tmp_path, port, at)) for port in ports}
        pi = await opened.enter_async_context(device(ports))
        assert await pi.push() == 1
        first = pi.link._dialer.server().port
        assert first is not None
        through[first].send_signal(signal.SIGSTOP)
        assert await pi.push() == 2
        assert pi.link._dialer.server().port != first
        through[first].send_signal(signal.SIGCONT)
        while pi.link._dialer.server().port != first:
            await pi.push()
            await asyncio.sleep(0.05)
        assert await pi.push() == pi.sequence
        (name,) = await shares(at)
        assert name is not None
        assert name.endswith(f":{first}")


@pytest.mark.slow
async def test_a_device_leaves_a_leader_that_hangs(tmp_path: Path) -> None:
    """And is at another one, of another run here, without a word of the first."""
    ports = [lasting(), lasting()]
    async with AsyncExitStack() as opened:
        servers = {}
        for port in ports:
            (place := tmp_path / str(port)).mkdir()
            servers[port] = await opened.enter_async_context(leader(place, port))
        pi = await opened.enter_async_context(device(ports))
        assert await pi.push() == 1
        first = pi.link._dialer.server().port
        assert first is not None
        servers[first].send_signal(signal.SIGSTOP)
        # The one run has the one update, and the other takes its first one: both are called "faults".
        assert (await pi.push(), pi.link._dialer.server().port == first) == (1, False)
        servers[first].send_signal(signal.SIGCONT)


@pytest.mark.slow
async def test_a_device_without_another_server_waits_for_the_one_that_hangs(tmp_path: Path) -> None:
    port = lasting()
    async with leader(tmp_path, port) as server, device([port]) as pi:
        assert await pi.push() == 1
        server.send_signal(signal.SIGSTOP)
        pushing = asyncio.create_task(pi.push())
        while pi.link.connections == 1 and pi.link._dialer.session is not None:  # given up
            await asyncio.sleep(0.05)
        server.send_signal(signal.SIGCONT)
        assert await pushing == 2


@pytest.mark.slow
async def test_a_gateway_gives_up_a_leader_that_hangs_and_follows_it_again(tmp_path: Path) -> None:
    at, port = lasting(), lasting()
    async with leader(tmp_path, at) as head, gateway(tmp_path, port, at), device([port]) as pi:
        assert await pi.push() == 1
        head.send_signal(signal.SIGSTOP)
        pushing = asyncio.create_task(pi.push())
        while await _ready(port):
            await asyncio.sleep(0.05)
        assert not pushing.done()
        head.send_signal(signal.SIGCONT)
        assert await pushing == 2


async def _ready(port: int) -> bool:
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/readyz") as answer:
        return answer.status == 200


SLOW = """
import asyncio, sys
from pathlib import Path
from benchmarks.faults import server
from edgeflock.server.sessions import Writer

push = Writer.push

async def slow(writer, push_):
    await asyncio.sleep(float(sys.argv[-1]))
    return await push(writer, push_)

Writer.push = slow
directory, host, port = sys.argv[1:4]
asyncio.run(server.serve(Path(directory), host, int(port), ()))
"""


@pytest.mark.slow
async def test_a_server_that_is_slow_to_answer_keeps_its_devices(tmp_path: Path) -> None:
    """It answers after three times as long as one may hang, and reads nothing meanwhile, pings neither."""
    port = lasting()
    arguments = ("-c", SLOW, tmp_path / "run", "127.0.0.1", port, 3 * SOON)
    async with process(*arguments, log=tmp_path / "log"), device([port]) as pi:
        assert await pi.push() == 1
        assert pi.link.connections == 1
