import pytest
from flwr.supercore.task_identity import TaskIdentity

from edgeflock.server.flower import strategy as flower_strategy
from tests.flower.grid import Clock, FakeGrid


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The strategies' clock, and this process in the role of a ServerApp's."""
    clock = Clock()
    monkeypatch.setattr(flower_strategy, "time", clock)
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    return clock


@pytest.fixture
def grid(clock: Clock) -> FakeGrid:
    return FakeGrid(clock)
