"""A server killed under load keeps every acknowledged update, once, and comes back bit for bit the same."""

from pathlib import Path

import pytest

from benchmarks import kill


@pytest.mark.slow
async def test_kill_9_loses_and_doubles_nothing(tmp_path: Path) -> None:
    report = await kill.run(tmp_path, kills=10, seed=1, devices=4)

    assert report.acknowledged > 0
    assert report.lost == report.doubled == report.unacknowledged == report.gaps == 0
    assert report.bit_identical
