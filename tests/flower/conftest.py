from concurrent.futures import Future
from typing import Any

import pytest
from flwr.supercore.task_identity import TaskIdentity

from edgeflock.server.flower import judging
from edgeflock.server.flower import strategy as flower_strategy
from tests.flower.grid import Clock, FakeGrid


class AtOnce:
    """A thread pool that has done what it was asked by the time that anybody looks."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, function: Any, *arguments: object) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)
        return future

    def shutdown(self, **_: object) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The strategies' clock, and this process in the role of a ServerApp's."""
    clock = Clock()
    monkeypatch.setattr(flower_strategy, "time", clock)
    monkeypatch.setattr(judging, "ThreadPoolExecutor", AtOnce)
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    return clock


@pytest.fixture
def grid(clock: Clock) -> FakeGrid:
    return FakeGrid(clock)
