"""A few rounds of benchmarks/failover.py: each kind of fault once."""

from pathlib import Path

import pytest

from benchmarks.failover import FAULTS, run
from tests.postgres import needed


@pytest.mark.long
async def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    needed()
    found = await run(len(FAULTS), 0, 2.0, tmp_path / "scene")
    assert isinstance(found["acknowledged"], int)
    assert found["acknowledged"] > 50
    assert (found["lost"], found["doubled"], found["gaps"], found["bit_identical"]) == (0, 0, 0, True)
