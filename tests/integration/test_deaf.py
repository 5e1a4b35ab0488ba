"""A device that asks and never reads: others do not wait for it."""

import asyncio
from pathlib import Path

import pytest

from edgeflock.server.sessions import records
from edgeflock.shared.model.layout import Layout
from tests.hosting import hosting
from tests.integration.foreign_client import PULL, WELCOME, Device, pack
from tests.integration.scene import hello

LARGE = Layout.from_shapes([("w", (4_000_000,))])
"""A model that no socket buffer holds."""


async def test_a_device_that_never_reads_can_be_superseded_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "CLOSE_SECONDS", 0.05)
    async with hosting(tmp_path, layout=LARGE) as hosted:
        deaf = Device(*await asyncio.open_connection("127.0.0.1", hosted.port))
        await deaf.upgrade()
        deaf.send(hello(device="pi"))
        welcome = await deaf.answer()
        assert welcome[0] == WELCOME
        for _ in range(3):
            deaf.send(pack([PULL, None]))
        again = Device(*await asyncio.open_connection("127.0.0.1", hosted.port))
        await again.upgrade()
        again.send(hello(device="pi", secret=welcome[22]))
        assert (await again.answer())[0] == WELCOME
        for _ in range(3):
            again.send(pack([PULL, None]))
        while not hosted.traffic.sent:
            await asyncio.sleep(0)
    # The server has ended, though `again` never read its models either.
    for device in (deaf, again):
        device.writer.transport.abort()
