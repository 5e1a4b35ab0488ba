"""Devices that hold versions which the server no longer has."""

from pathlib import Path

import pytest

from edgeflock.server.ledger import repair
from edgeflock.shared.errors import BaseInFuture, RunReplaced
from tests.hosting import hosting
from tests.integration.test_reconnect import link, update
from tests.proxy import proxying


async def test_after_a_repair_devices_begin_anew(tmp_path: Path) -> None:
    """What the run was after version 3 will be made again, otherwise: nobody may go on from it."""
    async with hosting(tmp_path) as hosted, proxying(hosted.port) as proxy, link(proxy.port) as device:
        await device.join()
        for number in range(5):
            await device.push(update(number + 1, number))
        proxy.target = 1
        proxy.cut_all()
        await hosted.writer.call(hosted.engine.steering.checkpoint)
        theta = hosted.engine.parameters.theta.tobytes()
        copy = tmp_path / "copy"
        copy.mkdir()
        for file in tmp_path.glob("journal.sqlite*"):
            (copy / file.name).write_bytes(file.read_bytes())
        assert repair(copy / "journal.sqlite", 3, 0.0).given_up == 5
        async with hosting(copy) as repaired:
            proxy.target = repaired.port
            with pytest.raises(RunReplaced):
                await device.push(update(6, 5))
            welcome = await device.join()
            assert (welcome.version, welcome.sequence) == (3, 3)
            for number in range(2):
                await device.push(update(4 + number, 3 + number))
            assert repaired.engine.parameters.theta.tobytes() == theta, "the same updates, the same bits"


async def test_a_version_that_never_was_is_told_and_stops_nobody(tmp_path: Path) -> None:
    """Every device can say that it holds any version."""
    async with hosting(tmp_path) as hosted, link(hosted.port) as liar, link(hosted.port, "pi 2") as honest:
        await liar.join()
        await honest.join()
        with pytest.raises(BaseInFuture, match="base 50 is ahead of the model's version 0"):
            await liar.push(update(1, 50))
        model = await liar.pull(50)
        assert (model.version, model.base) == (0, None)
        _, reported = [event.text for event in hosted.hub.events.list_from(0)[0] if event.kind == "refused"]
        assert reported == "base-in-future: it holds version 50, the run is at 0; is the journal an old copy?"
        assert (await honest.push(update(1, 0))).version == 1
