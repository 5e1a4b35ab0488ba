"""A server process whose journal cannot be written for a while: it stays, says so, and goes on by itself."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random

import aiohttp
import numpy as np
import pytest

from benchmarks.audit import initial_theta
from benchmarks.faults.server import SETTINGS
from benchmarks.hanging import process
from benchmarks.updates import LAYOUT
from edgeflock.client.transport import Link
from edgeflock.server.identity import Register
from edgeflock.server.ledger import verify
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from tests.integration.test_failing_disk import _free, small_disk
from tests.integration.test_hanging import Device
from tests.ports import lasting
from tests.postgres import cluster

__all__ = ["small_disk"]


@asynccontextmanager
async def server(
    directory: Path, port: int, *arguments: str, run: Path | None = None, leads: bool = True
) -> AsyncIterator[Process]:
    """An `edgeflock server` that answers, and if it is to lead does so, until the context ends."""
    theta = initial_theta()
    arrays = {t.name: theta[t.start : t.stop].reshape(t.shape) for t in LAYOUT.tensors}
    np.savez(model := directory.with_suffix(".npz"), **arrays)  # type: ignore[arg-type]
    settings = (
        *(setting for setting in SETTINGS if not setting.startswith("model.data")),
        f"model.module=arrays:{model}",
        f"server.directory={run or directory}",
        f"server.port={port}",
        "journal.lease=2",
    )
    command = [sys.executable, "-m", "edgeflock", "server", "--json", *arguments]
    for setting in settings:
        command += ["--set", setting]
    with directory.with_suffix(".log").open("ab") as log:
        one = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=log)
    try:
        if leads:
            assert one.stdout is not None
            assert json.loads(await one.stdout.readline())["version"] == 0
        while not leads and not await _answers(port):
            assert one.returncode is None, "it has ended"
            await asyncio.sleep(0.1)
        yield one
    finally:
        one.kill()
        await one.wait()


async def _answers(port: int) -> bool:
    try:
        _, line = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    line.close()
    return True


@asynccontextmanager
async def pushing(port: int) -> AsyncIterator[Device]:
    hello = Hello(PROTOCOL, "pi", LAYOUT.digest, {})
    async with Link(f"http://127.0.0.1:{port}", None, hello, Random(0)) as link:
        yield Device(link, (await link.join()).version)


class Looks:
    """What an orchestrator sees of a server: it is alive at each look."""

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self._http, self._url = http, f"http://127.0.0.1:{port}"

    async def ready(self) -> tuple[int, str]:
        async with self._http.get(f"{self._url}/livez") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with self._http.get(f"{self._url}/readyz") as answer:
            return answer.status, await answer.text()

    async def until(self, status: int, word: str = "") -> None:
        """Look until it is in a state, and says so."""
        while (now := await self.ready())[0] != status or word not in now[1]:
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("standby", [[], ["--standby"]])
async def test_a_leader_outlives_its_database(tmp_path: Path, standby: list[str]) -> None:
    port = lasting()
    with cluster() as database:
        url = f"journal.url={database.fresh()}"
        async with (
            server(tmp_path / "run", port, *standby, "--set", url) as one,
            pushing(port) as pi,
            aiohttp.ClientSession() as http,
        ):
            look = Looks(http, port)
            await look.until(200)
            for round_ in (1, 3):
                assert await pi.push() == round_
                await asyncio.to_thread(database.stop)
                waits = asyncio.create_task(pi.push())
                await look.until(503, "the journal's database does not answer")
                assert str(database.port) not in (await look.ready())[1]  # where it is nobody is told
                assert not waits.done()
                await asyncio.to_thread(database.start)
                await look.until(200)
                assert await waits == round_ + 1
            assert one.returncode is None
        found = verify(url.removeprefix("journal.url="))
        assert (found.version, found.damage) == (4, [])


@pytest.mark.slow
async def test_gateways_wait_with_their_leader(tmp_path: Path) -> None:
    port, through = lasting(), lasting()
    with cluster() as database:
        url = f"journal.url={database.fresh()}"
        async with server(tmp_path / "run", port, "--set", url) as one, aiohttp.ClientSession() as http:
            with closing(Register(tmp_path / "run")) as register:
                token = register.create("gateway", reusable=True).text
            options = (
                "--upstream",
                f"http://127.0.0.1:{port}",
                "--port",
                through,
                "--json",
                "--token",
                token,
            )
            arguments = ("-m", "edgeflock", "gateway", *options)
            async with process(*arguments, log=tmp_path / "gateway.log") as gateway:
                look = Looks(http, through)
                await look.until(200)
                async with pushing(through) as pi:
                    assert await pi.push() == 1
                    await asyncio.to_thread(database.stop)
                    waits = asyncio.create_task(pi.push())
                    await look.until(503, "this gateway has no leader")
                    assert not waits.done()
                    await asyncio.to_thread(database.start)
                    assert await waits == 2
                assert gateway.returncode is None
            assert one.returncode is None


@pytest.mark.slow
async def test_of_two_servers_that_lost_their_database_one_leads_again(tmp_path: Path) -> None:
    ports = [lasting(), lasting()]
    with cluster() as database:
        url = f"journal.url={database.fresh()}"
        async with server(tmp_path / "a", ports[0], "--set", url) as first, aiohttp.ClientSession() as http:
            looks = [Looks(http, port) for port in ports]
            async with pushing(ports[0]) as pi:
                assert await pi.push() == 1
            async with server(tmp_path / "b", ports[1], "--standby", "--set", url, leads=False) as second:
                await looks[1].until(503, "hosts the run")
                await asyncio.to_thread(database.stop)
                for look in looks:
                    await look.until(503, "does not answer")
                await asyncio.to_thread(database.start)
                while sorted([(await look.ready())[0] for look in looks]) != [200, 503]:
                    await asyncio.sleep(0.05)
                assert first.returncode is None
                assert second.returncode is None


@pytest.mark.slow
async def test_a_server_outlives_a_full_disk(small_disk: Path) -> None:
    """What was acknowledged is there when there is room again, and what waits is taken then."""
    port, filler = lasting(), small_disk / "filler"
    async with (
        server(small_disk.with_name("run"), port, run=small_disk / "run") as one,
        pushing(port) as pi,
        aiohttp.ClientSession() as http,
    ):
        look = Looks(http, port)
        assert await pi.push() == 1
        filler.write_bytes(bytes(_free(small_disk) - 300_000))
        while True:
            before, waits = pi.version, asyncio.create_task(pi.push())
            full = asyncio.create_task(look.until(503, "No space left"))
            await asyncio.wait((waits, full), return_when=asyncio.FIRST_COMPLETED)
            if full.done():
                break
            full.cancel()
        assert not waits.done()
        filler.unlink()
        await look.until(200)
        assert await waits in (before + 1, before + 2)  # a commit that failed may be on the disk all the same
        assert one.returncode is None
    assert verify(small_disk / "run" / "journal.sqlite").damage == []
