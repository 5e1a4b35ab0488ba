"""What the strategies compute, and what their users see of it."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

from edgeflock.server.flower import AsyncAdaComp, ScaDLES
from edgeflock.shared.settings.traffic import CompressionSettings
from tests.flower.apps import MODEL, PLAIN, Change, Numbers, app, numbers, plus, record
from tests.flower.grid import Clock, FakeGrid


def test_a_round_is_flowers_own_average(grid: FakeGrid) -> None:
    """With full participation: array for array what FedAvg makes of the same replies."""
    rng = np.random.default_rng(1)
    replies = []
    for node, examples in enumerate((3, 17, 5), 1):
        returned = {
            name: (array + rng.standard_normal(array.shape)).astype(array.dtype)
            if array.dtype.kind == "f"
            else array
            for name, array in MODEL.items()
        }
        metrics = MetricRecord({"num-examples": examples})
        replies.append(RecordDict({"arrays": record(returned), "metrics": metrics}))
        grid.add(node, app(lambda _, returned=returned: returned, examples))  # type: ignore[misc]
    expected = numbers(aggregate_arrayrecords(replies, "num-examples"))

    result = ScaDLES(fraction_evaluate=0.0).start(grid, record(MODEL), num_rounds=1)

    ours = numbers(result.arrays)
    assert list(ours) == list(MODEL)
    for name, array in ours.items():
        assert array.dtype == MODEL[name].dtype
        assert array.shape == MODEL[name].shape
        tolerance = 1e-3 if array.dtype == np.float16 else 1e-6
        np.testing.assert_allclose(array, expected[name], rtol=tolerance, atol=tolerance)


def test_rounds_of_scadles_and_fedavg_end_at_the_same_model(clock: Clock) -> None:
    """Several rounds of training that depends on the model, nodes of unequal weight and speed."""

    def train(pull: float) -> Change:
        return lambda model: {n: a + np.float32(0.3) * (np.float32(pull) - a) for n, a in model.items()}

    results = []
    for strategy in (FedAvg(min_available_nodes=3, fraction_evaluate=0.0), ScaDLES(min_available_nodes=3)):
        grid = FakeGrid(clock)
        for node, (pull, examples) in enumerate(((1, 10), (2, 30), (-4, 7)), 1):
            grid.add(node, app(train(pull), examples), seconds=node)
        results.append(numbers(strategy.start(grid, record(PLAIN), num_rounds=4).arrays))
    for name, array in results[0].items():
        np.testing.assert_allclose(results[1][name], array, rtol=1e-6)


def test_a_reply_applies_as_it_comes_by_the_staleness_of_its_parameters(grid: FakeGrid) -> None:
    """Two nodes are at work: a reply counts half, as in a round. Node 2 needs as long as node 1 for five
    updates: its own then counts a fifth (AdaComp, equation 5)."""
    grid.add(1, app(plus(1)), seconds=1)
    grid.add(2, app(plus(100)), seconds=5.5)
    result = AsyncAdaComp(updates_per_round=6, fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=1)
    np.testing.assert_allclose(numbers(result.arrays)["w"], 5 / 2 + 100 / 5, rtol=1e-6)


@pytest.mark.parametrize("mod", [False, True])
def test_replies_to_one_model_come_to_what_fedavg_makes_of_them(clock: Clock, mod: bool) -> None:
    """Nodes train by steps of their own: changing the strategy alone does not add up what they changed."""
    results = []
    for strategy in (
        FedAvg(min_available_nodes=8, fraction_evaluate=0.0),
        AsyncAdaComp(min_available_nodes=8, fraction_evaluate=0.0, select=1.0, values="f32"),
    ):
        grid = FakeGrid(clock)
        for node in range(1, 9):
            grid.add(node, app(plus(node), mod=mod))
        results.append(numbers(strategy.start(grid, record(PLAIN), num_rounds=1).arrays))
    np.testing.assert_allclose(results[1]["w"], results[0]["w"], rtol=1e-6)


def test_replies_count_by_the_nodes_that_are_at_work(grid: FakeGrid) -> None:
    """Two of them, later six: a regime of its own, which the journal has."""
    for node in (1, 2):
        grid.add(node, app(plus(1)))
    for node in (3, 4, 5, 6):
        grid.clock.at(4.5, lambda node=node: grid.add(node, app(plus(1))))  # type: ignore[misc]
    strategy = AsyncAdaComp(rule="none", updates_per_round=2, fraction_evaluate=0.0)
    seen: list[float] = []
    strategy.start(
        grid,
        record(PLAIN),
        num_rounds=12,
        evaluate_fn=lambda number, arrays: seen.append(float(numbers(arrays)["w"][0])),
    )
    moves = np.diff(seen)
    np.testing.assert_allclose(moves[:3], 1, rtol=1e-6)
    np.testing.assert_allclose(moves[-3:], 1 / 3, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rule": "tau"}, 5 / 2 + 100 / 2 / 3),
        ({"rule": "none"}, 5 / 2 + 100 / 2),
        ({"rule": "none", "learning_rate": 0.5}, 0.5 * (5 / 2 + 100 / 2)),
        ({"rule": "sqrt"}, 5 / 2 + 100 / 2 / (1 + 3) ** 0.5),
        ({"rule": "none", "base_batch": 20}, 0.5 * (5 + 100)),
    ],
)
def test_the_rules_are_the_servers(grid: FakeGrid, options: dict[str, object], expected: float) -> None:
    grid.add(1, app(plus(1), examples=10), seconds=1)
    grid.add(2, app(plus(100), examples=10), seconds=5.5)
    strategy = AsyncAdaComp(updates_per_round=6, fraction_evaluate=0.0, **options)  # type: ignore[arg-type]
    result = strategy.start(grid, record(PLAIN), num_rounds=1)
    np.testing.assert_allclose(numbers(result.arrays)["w"], expected, rtol=1e-6)


def test_running_statistics_follow_instead_of_adding_up(grid: FakeGrid) -> None:
    """Four nodes find the mean to be 8, from the same model: what they changed adds up to 32."""

    def train(model: dict[str, Numbers]) -> dict[str, Numbers]:
        return model | {
            "norm.running_mean": np.full(3, 8, np.float32),
            "norm.num_batches_tracked": np.array(99),
        }

    for node in range(1, 5):
        grid.add(node, app(train))
    strategy = AsyncAdaComp(fraction_evaluate=0.0, updates_per_round=4)
    ours = numbers(strategy.start(grid, record(MODEL), num_rounds=1).arrays)
    np.testing.assert_allclose(ours["norm.running_mean"], 8, rtol=1e-3)
    assert ours["norm.num_batches_tracked"] == 5, "no float: nodes get it as it was"
    np.testing.assert_array_equal(ours["layer.weight"], MODEL["layer.weight"])


@pytest.mark.parametrize("mod", [False, True])
@pytest.mark.parametrize(
    "strategy",
    [
        AsyncAdaComp(fraction_evaluate=0.0),
        AsyncAdaComp(fraction_evaluate=0.0, rule="none", base_batch=1),
        ScaDLES(fraction_evaluate=0.0),
        ScaDLES(fraction_evaluate=0.0, base_batch=1),
    ],
    ids=["async", "async, as much as can be", "rounds", "rounds, scaled"],
)
def test_a_variance_stays_one(grid: FakeGrid, strategy: AsyncAdaComp | ScaDLES, mod: bool) -> None:
    """Six nodes say, round by round, that it is much smaller than it was; it never leaves what they said."""
    model = {"w": np.zeros(10, np.float32), "norm.running_var": np.ones(50, np.float32)}
    rng = np.random.default_rng(0)

    def train(model: dict[str, Numbers]) -> dict[str, Numbers]:
        variance = rng.uniform(0.001, 0.002, 50).astype(np.float32)
        return {"w": model["w"] + np.float32(1e-3), "norm.running_var": variance}

    for node in range(1, 7):
        grid.add(node, app(train, examples=100, mod=mod), seconds=node)
    seen: list[Numbers] = []
    strategy.start(
        grid,
        record(model),
        num_rounds=3,
        evaluate_fn=lambda number, arrays: seen.append(numbers(arrays)["norm.running_var"]),
    )
    assert len(seen) == 4
    assert (seen[0] == 1).all()
    assert all((0.0009 < variance).all() and (variance < 0.0021).all() for variance in seen[1:])


def test_no_node_ever_waits_for_another(grid: FakeGrid) -> None:
    grid.add(1, app(plus(1)), seconds=1)
    grid.add(2, app(plus(1)), seconds=20)
    AsyncAdaComp(updates_per_round=22, fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=1)
    asked = [time for time, node, _ in grid.log if node == 1]
    assert len(asked) == 21
    assert max(np.diff(asked)) < 1.5
    assert sum(node == 2 for _, node, _ in grid.log) == 2


def test_a_part_of_the_nodes_trains_at_a_time_each_in_its_turn(grid: FakeGrid) -> None:
    for node in range(1, 5):
        grid.add(node, app(plus(1)))
    strategy = AsyncAdaComp(fraction_train=0.5, updates_per_round=8, fraction_evaluate=0.0)
    strategy.start(grid, record(PLAIN), num_rounds=1)
    asked = [node for _, node, _ in grid.log]
    assert set(asked[:2]) | set(asked[2:4]) == {1, 2, 3, 4}
    assert [time for time, _, _ in grid.log[:4]] == [0, 0, *[grid.log[2][0]] * 2]


# What users see


def test_evaluations_and_metrics_are_reported_by_round(grid: FakeGrid) -> None:
    for node, examples in ((1, 10), (2, 30)):
        grid.add(node, app(plus(1), examples))
    seen: list[tuple[int, float]] = []

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append((number, float(numbers(arrays)["w"][0])))
        return MetricRecord({"accuracy": number / 10})

    config = ConfigRecord({"lr": 0.1})
    result = ScaDLES().start(grid, record(PLAIN), 2, train_config=config, evaluate_fn=evaluate)
    assert seen == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert {r: m["accuracy"] for r, m in result.evaluate_metrics_serverapp.items()} == {
        0: 0.0,
        1: 0.1,
        2: 0.2,
    }
    assert {r: m["train_loss"] for r, m in result.train_metrics_clientapp.items()} == {1: 50.0, 2: 50.0}
    totals = {r: m["total"] for r, m in result.evaluate_metrics_clientapp.items()}
    assert totals == {1: 6.0, 2: 12.0}, "of the model of that round, though training goes on meanwhile"
    assert dict(config) == {"lr": 0.1}, "the caller's record stays as it is"


def test_metrics_that_do_not_fit_together_cost_nothing_but_themselves(grid: FakeGrid) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)))

    def broken(contents: list[RecordDict], key: str) -> MetricRecord:
        raise KeyError(key)

    strategy = ScaDLES(train_metrics_aggr_fn=broken, evaluate_metrics_aggr_fn=broken)
    result = strategy.start(grid, record(PLAIN), num_rounds=1)
    assert result.train_metrics_clientapp == result.evaluate_metrics_clientapp == {}
    np.testing.assert_array_equal(numbers(result.arrays)["w"], 1)


@pytest.mark.parametrize("strategy", [AsyncAdaComp(), ScaDLES()])
def test_defaults_are_those_of_docs_flower_and_not_a_server_s(strategy: AsyncAdaComp | ScaDLES) -> None:
    config = strategy.config
    assert config.compression == CompressionSettings(
        select=0.1, balance=1, feedback=0.5, threshold=0, indices="golomb", values="codebook4"
    )
    assert (config.coordination.average, config.downlink.mode) == (0, "exact")


def test_as_many_updates_apply_as_rounds_were_asked_for(grid: FakeGrid) -> None:
    """Ten replies come together, and a round is of four: its model is that of four, and none is lost."""
    for node in range(1, 11):
        grid.add(node, app(plus(1)), seconds=1)
    seen: list[float] = []
    strategy = AsyncAdaComp(rule="none", base_batch=10, updates_per_round=4, fraction_evaluate=0.0)
    strategy.start(
        grid,
        record(PLAIN),
        num_rounds=4,
        evaluate_fn=lambda number, arrays: seen.append(float(numbers(arrays)["w"][0])),
    )
    assert seen == [0, 4, 8, 12, 16]
    assert strategy.outcomes == {"applied": 16}


def test_a_reply_that_waits_for_the_next_round_is_not_late(grid: FakeGrid) -> None:
    """It came within the timeout, though it is taken after it."""
    for node in (1, 2):
        grid.add(node, app(plus(1)), seconds=2.0)
    strategy = AsyncAdaComp(updates_per_round=1, fraction_evaluate=0.0, poll=2.0)
    strategy.start(grid, record(PLAIN), num_rounds=2, timeout=2.0001)
    assert strategy.outcomes == {"applied": 2}
