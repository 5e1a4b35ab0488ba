"""Nodes whose data hardly count, and classes that the model does not know, are named."""

import logging
from collections.abc import Iterator

import pytest
from flwr.app import ArrayRecord, MetricRecord

from edgeflock.server.flower import AsyncAdaComp, ScaDLES
from edgeflock.server.flower.shares import Shares, lost_classes
from tests.flower.apps import PLAIN, app, plus, record
from tests.flower.grid import FakeGrid


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """What the run warns of, each once."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("flwr").addHandler(handler)
    yield said
    logging.getLogger("flwr").removeHandler(handler)


def test_a_node_that_is_slow_is_named_once(grid: FakeGrid, warnings: list[str]) -> None:
    for node in range(1, 6):
        grid.add(node, app(plus(1)), seconds=20 if node == 3 else 1)
    AsyncAdaComp(min_available_nodes=5, fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=30)
    (said,) = warnings
    assert said.startswith("Node 3: its replies are 0.")
    assert "and it has about 20% of the data, so the model hardly learns what" in said


def test_a_node_that_never_answers_is_named(grid: FakeGrid, warnings: list[str]) -> None:
    for node in range(1, 5):
        grid.add(node, app(plus(1)), seconds=1e6 if node == 2 else 1)
    AsyncAdaComp(fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=12)
    assert [said[:35] for said in warnings] == ["Node 2: its replies are 0.0% of wha"]


def test_a_node_of_far_more_data_is_named(grid: FakeGrid, warnings: list[str]) -> None:
    """All replies count alike, and one of them is of most of the data."""
    for node in range(1, 6):
        grid.add(node, app(plus(1), examples=1000 if node == 4 else 10))
    AsyncAdaComp(fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=10)
    AsyncAdaComp(fraction_evaluate=0.0, base_batch=200).start(grid, record(PLAIN), num_rounds=10)
    (said,) = warnings
    assert said.startswith("Node 4: its replies are 20.0% of what counts, and it has about 96% of the data")
    assert "It is slow, has far more data than others, or its replies fail" in said


@pytest.mark.parametrize("kind", [AsyncAdaComp, ScaDLES])
def test_nobody_is_named_where_all_count(
    grid: FakeGrid, warnings: list[str], kind: type[AsyncAdaComp] | type[ScaDLES]
) -> None:
    """Nodes of like speed and data, one that comes late, and in rounds one that is slow."""
    slow = 3.0 if kind is ScaDLES else 1.5
    for node in range(1, 6):
        grid.add(node, app(plus(1), examples=10 + node), seconds=slow if node == 3 else 1)
    grid.clock.at(12.0, lambda: grid.add(6, app(plus(1))))
    kind(fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=30)
    assert warnings == []


def test_who_is_left_behind_by_every_quorum_is_named(grid: FakeGrid, warnings: list[str]) -> None:
    for node in range(1, 5):
        grid.add(node, app(plus(1)), seconds=10 if node == 2 else 1)
    ScaDLES(quorum=3, fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=20)
    (said,) = (said for said in warnings if said.startswith("Node 2: its replies are 0.0% of what counts"))
    assert "ScaDLES without a quorum: it waits for every node" in said, "it is ScaDLES that does not wait"


def test_it_is_over_only_with_half_of_the_share() -> None:
    shares = Shares()
    for node in (1, 2):
        shares.record_request(node)
        shares.record_reply(node, 100)
    shares.record_update(1, 5.0)
    shares.advance(12)
    assert [short.node for short in shares.find_short({1, 2})] == [2]
    shares.record_update(2, 1.0)
    assert list(shares.find_short({1, 2})) == []
    shares.record_update(2, 5.0)
    assert list(shares.find_short({1, 2})) == []
    shares.advance(200)
    shares.record_update(1, 5.0)
    assert [short.node for short in shares.find_short({1, 2})] == [2], "it had its share meanwhile"


def test_a_class_that_is_not_known_is_named_once(grid: FakeGrid, warnings: list[str]) -> None:
    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy": 0.6, "accuracy_by_class": [0.9, 0.9, 0.0, number / 100]})

    for node in (1, 2):
        grid.add(node, app(plus(1)))
    ScaDLES(fraction_evaluate=0.0).start(grid, record(PLAIN), 6, evaluate_fn=evaluate)
    assert warnings == [
        "Round 2: by accuracy_by_class, at most 2% of class 2, 3 are predicted correctly, for the 3rd time "
        "in a row: the nodes that have this class may count too little, or no node has it"
    ]


def test_a_class_that_comes_later_than_others_is_not_named(grid: FakeGrid, warnings: list[str]) -> None:
    """A model that has trained for two rounds need not know all classes."""

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy_by_class": [0.9, 0.0 if number in (1, 2, 4, 5) else 0.5]})

    for node in (1, 2):
        grid.add(node, app(plus(1)))
    ScaDLES(fraction_evaluate=0.0).start(grid, record(PLAIN), 6, evaluate_fn=evaluate)
    assert warnings == []


def test_a_node_that_is_gone_is_not_named(grid: FakeGrid, warnings: list[str]) -> None:
    """It may be back under another number."""
    for node in range(1, 6):
        grid.add(node, app(plus(1)), seconds=7 if node == 2 else 1)
    grid.clock.at(3.0, lambda: grid.remove(2))
    AsyncAdaComp(fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=30)
    assert [said for said in warnings if "hardly learned" in said] == []


@pytest.mark.parametrize(
    "metrics",
    [
        {"recall": [0.5, 0.4]},
        {"accuracy": 0.0},
        {"accuracy": [0.0, 0.0, 0.01]},
        {"losses": [0.0, 1.0]},
        {"recall": []},
    ],
)
def test_no_class_is_named_where_none_is_lost(metrics: dict[str, object]) -> None:
    assert lost_classes(metrics) == {}
