"""The system's clock jumps by hours, back and forth: times are shown by it, and nothing is decided."""

import time
from itertools import chain, cycle
from pathlib import Path

import pytest

from edgeflock.operations.journal_frames import journal_frames
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.monitoring.feed import state
from edgeflock.shared.protocol.frames import Delta
from tests.hosting import LAYOUT, hosting
from tests.integration.test_reconnect import link, update

HOUR = 3600.0


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> None:
    """time.time() is six hours early, then late, and so on, at each look."""
    true = time.time
    jumps = chain([0.0], cycle((-6 * HOUR, 6 * HOUR, 30 * HOUR)))
    monkeypatch.setattr("time.time", lambda: true() + next(jumps))


@pytest.mark.usefixtures("jumping")
@pytest.mark.parametrize("settings", [(), ("coordination.mode=rounds",)], ids=["asynchronous", "rounds"])
async def test_a_run_goes_on_whatever_the_clock_says(tmp_path: Path, settings: tuple[str, ...]) -> None:
    async with hosting(tmp_path, *settings) as hosted, link(hosted.port) as device:
        await device.join()
        for number in range(12):
            assert (await device.push(update(number + 1, number))).version == number + 1
        (known,) = hosted.registry.devices.values()
        assert state(known, known.connection.last_heard) == "training"
        assert 0 <= known.statistics.interval < HOUR
        theta = hosted.engine.parameters.theta.tobytes()
    async with hosting(tmp_path, *settings) as hosted:
        assert hosted.engine.published.version == 12
        assert hosted.engine.parameters.theta.tobytes() == theta
    journal = Journal(tmp_path / "journal.sqlite")
    assert replay(journal, LAYOUT).theta.tobytes() == theta
    journal.close()
    frames = [frame for frame in journal_frames(tmp_path / "journal.sqlite") if isinstance(frame, Delta)]
    assert frames[-1].overview.version == 12
    assert len(frames) < 10_000
