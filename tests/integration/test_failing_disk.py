"""When the journal cannot be written: nothing is acknowledged or published, and a restart goes on."""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import aiohttp
import pytest

from edgeflock.client.identity import ClientIdentity
from edgeflock.client.transport import Link
from edgeflock.server.ledger import claim_run, verify
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from edgeflock.shared.settings.config import parse
from tests.hosting import LAYOUT, hosting, initial_theta
from tests.integration.test_reconnect import link, update


class GaveUp(Exception):
    """In place of the wait before the next attempt: a device tries for ever."""


async def give_up(seconds: float) -> None:
    raise GaveUp


def impatient(port: int, name: str, identity: ClientIdentity | None = None) -> Link:
    hello = Hello(PROTOCOL, name, LAYOUT.digest, {})
    return Link(f"http://127.0.0.1:{port}", identity, hello, Random(0), give_up)


async def test_nothing_leaves_that_is_not_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with hosting(tmp_path) as hosted, impatient(hosted.port, "pi") as device:
        await device.join()
        assert (await device.push(update(1, 0))).version == 1

        def full() -> None:
            raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(hosted.journal, "commit", full)
        with pytest.raises(GaveUp):
            await device.push(update(2, 1))
        assert isinstance(hosted.writer.error, sqlite3.OperationalError)
        async with impatient(hosted.port, "another") as another:
            with pytest.raises(GaveUp):
                await another.join()
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{hosted.port}/v1/model") as response,
        ):
            assert response.status == 503
            assert (await response.json())["code"] == "unavailable"
    async with hosting(tmp_path) as hosted, link(hosted.port) as device:
        assert (await device.join()).version == 1
        assert (await device.push(update(2, 1))).version == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB, which only root can mount."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_ends_the_server_and_loses_nothing(small_disk: Path) -> None:
    """Whatever was acknowledged is there when there is room again, and nothing else was told to anybody."""
    directory, filler = small_disk / "run", small_disk / "filler"
    directory.mkdir()
    async with hosting(directory) as hosted, impatient(hosted.port, "pi") as device:
        await device.join()
        filler.write_bytes(bytes(_free(small_disk) - 400_000))
        acknowledged = 0
        with suppress(GaveUp):
            while True:
                receipt = await device.push(update(acknowledged + 1, acknowledged))
                acknowledged = receipt.version
        assert acknowledged > 0
        assert hosted.engine.published.version == acknowledged
        assert hosted.writer.unavailable_reason is not None
        assert isinstance(hosted.writer.error, sqlite3.OperationalError)
        assert "full" in str(hosted.writer.error)
    assert verify(directory / "journal.sqlite").version >= acknowledged
    filler.unlink()
    async with hosting(directory) as hosted, link(hosted.port) as device:
        welcome = await device.join()
        # A commit that failed may have reached the disk all the same: then its device is told so.
        assert welcome.version in (acknowledged, acknowledged + 1)
        assert (
            await device.push(update(welcome.sequence + 1, welcome.version))
        ).version == welcome.version + 1
    assert verify(directory / "journal.sqlite").damage == []


async def test_a_disk_that_is_full_from_the_start_is_said_to_be(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(bytes(_free(small_disk)))
    theta, config = initial_theta(LAYOUT.size), parse(overrides=["model.data="])
    claim = claim_run(small_disk / "run", "server.directory", LAYOUT, theta, config)
    with pytest.raises(ConfigError, match=r"server.directory = .* cannot hold a run: .*(full|space)"):
        claim.__enter__()


def _free(place: Path) -> int:
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize
