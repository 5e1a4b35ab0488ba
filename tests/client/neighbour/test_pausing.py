"""Training held back while there is a reason, and what is told of it."""

import asyncio
import logging
from pathlib import Path

import pytest

from edgeflock.client.neighbour import Pausing
from edgeflock.client.neighbour import pausing as module
from edgeflock.client.neighbour.reasons import MachineState, Rules

HOT, COOL = MachineState(temperature=90.0), MachineState(temperature=50.0)


async def test_it_waits_while_there_is_a_reason_and_goes_on_by_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_EVERY", 0.0)
    now = [COOL]
    reported: list[object] = []
    pausing = Pausing(Rules(), lambda time: now[0])

    async def tell() -> None:
        reported.append(pausing.facts())

    assert not await pausing.wait_permission()
    now[0] = HOT
    await pausing.check()
    with caplog.at_level(logging.INFO, "edgeflock.client"):
        watching = asyncio.create_task(pausing.watch(tell))
        waiting = asyncio.create_task(pausing.wait_permission())
        while not reported:
            await asyncio.sleep(0)
        assert not waiting.done()
        now[0] = COOL
        assert await waiting
        while len(reported) < 2:
            await asyncio.sleep(0)
    watching.cancel()
    await asyncio.wait((watching,))
    assert reported == [{"paused": "hot: 90 C, until it has 75"}, {}]
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "paused: hot: 90 C, until it has 75"
    assert second.startswith("training resumes after a pause of ")


async def test_the_reason_is_its_owner_s_business_if_nothing_is_to_be_told() -> None:
    pausing = Pausing(Rules(), lambda time: HOT, shows_reason=False)
    await pausing.check()
    assert pausing.facts() == {"paused": "for a reason of its own"}


async def test_a_file_of_the_owner_s_pauses_it(tmp_path: Path) -> None:
    pausing = Pausing(Rules(hot=None, undervoltage=False, file=tmp_path / "stop"))
    await pausing.check()
    assert pausing.facts() == {}
    (tmp_path / "stop").write_text("the sun is down\n")
    await pausing.check()
    assert pausing.facts() == {"paused": "the sun is down"}
    (tmp_path / "stop").unlink()
    await pausing.check()
    assert not await pausing.wait_permission()
