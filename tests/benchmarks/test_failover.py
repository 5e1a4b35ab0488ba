"""A few rounds of benchmarks/failover.py: each kind of fault once."""

from pathlib import Path

import pytest

from benchmarks.failover import FAULTS, SHARD, run
from tests.postgres import needed

pytestmark = pytest.mark.long


def is_whole(found: dict[str, object]) -> bool:
    assert isinstance(found["acknowledged"], int)
    assert found["acknowledged"] > 50
    return (found["lost"], found["doubled"], found["gaps"], found["bit_identical"]) == (0, 0, 0, True)


async def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path) -> None:
    needed()
    assert is_whole(await run(len(FAULTS), 0, 2.0, tmp_path / "scene"))


async def test_nor_is_it_where_the_model_is_in_shards(tmp_path: Path) -> None:
    """Over a leader that is killed, a shard of the next one, and a database that fails."""
    needed()
    pytest.importorskip("ray", reason="the extra ray is not installed")
    faults = ("kill", SHARD, "database")
    assert is_whole(await run(len(faults), 0, 2.0, tmp_path / "scene", faults, shards=2))
