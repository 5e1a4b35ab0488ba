"""When the journal cannot be written: nothing is acknowledged or published, and a restart goes on."""

import sqlite3
from pathlib import Path
from random import Random

import aiohttp
import pytest

from edgeflock.client.transport import Link
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from tests.hosting import LAYOUT, hosting
from tests.integration.test_reconnect import link, update


class GaveUp(Exception):
    """In place of the wait before the next attempt: a device tries for ever."""


async def give_up(seconds: float) -> None:
    raise GaveUp


def impatient(port: int, name: str, token: str = "") -> Link:
    hello = Hello(PROTOCOL, name, LAYOUT.digest, {})
    return Link(f"http://127.0.0.1:{port}", token, hello, Random(0), give_up)


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
