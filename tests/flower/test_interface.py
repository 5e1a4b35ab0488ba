"""FedAvg's interface, of which a strategy in its place has all: what it means when nobody waits."""

import inspect
import json
import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from edgeflock.server.flower import AsyncAdaComp, ScaDLES, judging
from edgeflock.server.flower.options import FEDAVG
from edgeflock.shared.errors import ConfigError
from tests.flower.apps import PLAIN, app, numbers, plus, record
from tests.flower.grid import Clock, FakeGrid

Kind = type[AsyncAdaComp] | type[ScaDLES] | type[FedAvg]

both = pytest.mark.parametrize("kind", [AsyncAdaComp, ScaDLES])


def reported(grid: FakeGrid, node: int) -> list[dict[str, object]]:
    """Let an app join that notes the configs it is sent: these."""
    configs: list[dict[str, object]] = []

    def note(message: Message, context: Context, call_next: object) -> Message:
        (config,) = message.content.config_records.values()
        json.dumps(dict(config))
        configs.append(dict(config))
        return call_next(message, context)  # type: ignore[operator,no-any-return]

    trains = app(plus(1))
    noting = ClientApp(mods=[note])
    noting.train()(trains._registered_funcs["train.default"])
    grid.add(node, noting, seconds=3.0)
    return configs


def halving(kind: Kind) -> Kind:
    """The schedule of Flower's examples."""

    class Halving(kind):  # type: ignore[misc,valid-type]
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            if server_round % 3 == 0:
                config["lr"] *= 0.5  # type: ignore[operator]
            return super().configure_train(server_round, arrays, config, grid)  # type: ignore[no-any-return]

    return Halving


@pytest.mark.parametrize("kind", [FedAvg, AsyncAdaComp, ScaDLES])
def test_a_schedule_goes_by_rounds_however_long_they_take(clock: Clock, kind: Kind) -> None:
    grid = FakeGrid(clock)
    seen = reported(grid, 1), reported(grid, 2)
    config = ConfigRecord({"lr": 0.8})
    halving(kind)(fraction_evaluate=0.0).start(grid, record(PLAIN), 7, train_config=config)
    expected = [0.8, 0.8, 0.4, 0.4, 0.4, 0.2, 0.2]
    for configs in seen:
        assert [c["lr"] for c in configs] == expected
        assert [c["server-round"] for c in configs] == [1, 2, 3, 4, 5, 6, 7]


def test_a_schedule_is_where_it_was_after_a_restart(grid: FakeGrid, tmp_path: Path) -> None:
    seen = reported(grid, 1)
    reported(grid, 2)
    for rounds in (4, 7):
        strategy = halving(ScaDLES)(checkpoint=tmp_path, fraction_evaluate=0.0)  # type: ignore[call-arg]
        strategy.start(grid, record(PLAIN), rounds, train_config=ConfigRecord({"lr": 0.8}))
    assert [c["lr"] for c in seen] == [0.8, 0.8, 0.4, 0.4, 0.4, 0.2, 0.2]


@both
def test_nobody_is_configured_who_is_not_asked(grid: FakeGrid, kind: type[AsyncAdaComp]) -> None:
    calls: list[int] = []

    class Counting(kind):  # type: ignore[misc,valid-type]
        def configure_train(self, *arguments: object, **named: object) -> Iterable[Message]:
            messages = list(super().configure_train(*arguments, **named))
            calls.append(len(messages))
            return messages

    grid.add(1, app(plus(1)), seconds=30)
    grid.add(2, app(plus(1)), seconds=30)
    Counting(fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=2)
    assert 0 not in calls
    assert sum(calls) == len(grid.log)


def test_arguments_have_fedavgs_places() -> None:
    names = list(inspect.signature(FedAvg.__init__).parameters)[1:]
    assert tuple(names) == FEDAVG
    strategy = AsyncAdaComp(0.5, 0.25, 3, 4, 5, "weight", "model", "settings", None, None, window=7)
    known = strategy.settings
    assert (known.fraction_train, known.fraction_evaluate) == (0.5, 0.25)
    assert (known.min_train_nodes, known.min_evaluate_nodes, known.min_available_nodes) == (3, 4, 5)
    assert (known.weighted_by_key, known.arrayrecord_key, known.configrecord_key) == (
        "weight",
        "model",
        "settings",
    )
    assert strategy.config.coordination.window == 7
    with pytest.raises(TypeError, match="fraction_train is given twice"):
        ScaDLES(0.5, fraction_train=0.5)
    with pytest.raises(TypeError, match="at most 10 arguments"):
        ScaDLES(*range(11))
    with pytest.raises(
        TypeError, match="^'fraction_fit' is no option of this strategy; did you mean 'fraction_train'"
    ):
        AsyncAdaComp(fraction_fit=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="^'rule' is no option of this strategy; its options are check"):
        ScaDLES(rule="tau")  # type: ignore[call-arg]


def test_the_options_of_the_strategy_itself_are_known() -> None:
    with pytest.raises(TypeError, match="; did you mean 'buffer'"):
        AsyncAdaComp(bufer=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="its options are .*, rule, .*, updates_per_round$"):
        AsyncAdaComp(zzz=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="its options are .*, quorum, deadline$"):
        ScaDLES(zzz=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": "adam"}, "^optimizer = 'adam': it must be a valid dict"),
        ({"optimizer": {"kind": "adm"}}, r"^optimizer\.kind = 'adm': "),
        (
            {"optimizer": {"beta": 0.9}},
            r"^optimizer\.beta = 0\.9: the optimizer has no such setting; it has kind, ",
        ),
        ({"optimizer": {"schedule": "cosine"}}, r"^optimizer\.schedule = 'cosine' cannot end with "),
        ({"optimizer": {"kind": "adam", "beta1": 0.99999999}}, r": beta1 = 0\.99999999 is 1 in float32"),
        ({"rule": "foo"}, "^rule = 'foo': "),
        ({"statistics": "running_mean"}, "^statistics = 'running_mean': it must be a valid tuple"),
        ({"statistics": [1]}, r"^statistics\.0 = 1: it must be a valid string"),
        ({"poll": 0}, "^poll = 0: it must be greater than 0"),
        ({"fraction_train": 0}, "^fraction_train = 0: it must be greater than 0"),
        ({"min_train_nodes": "2"}, "^min_train_nodes = '2': it must be a valid integer"),
        ({"min_available_nodes": 2.5}, r"^min_available_nodes = 2\.5: it must be a valid integer"),
        ({"checkpoint": 3}, "^checkpoint = 3: it must be a valid string$"),
        ({"keep_updates": "no", "poll": "x"}, "^keep_updates = 'no': .*; poll = 'x': "),
        ({"train_metrics_aggr_fn": "mean"}, "^train_metrics_aggr_fn = 'mean': it must be callable"),
        ({"updates_per_round": -1}, "^updates_per_round = -1: it must be an integer of at least 0"),
        ({"updates_per_round": "3"}, "^updates_per_round = '3': it must be an integer of at least 0"),
    ],
)
def test_what_an_option_cannot_be_is_said_by_its_name(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AsyncAdaComp(**options)  # type: ignore[arg-type]


def test_so_many_nodes_are_busy_at_least(grid: FakeGrid) -> None:
    for node in range(1, 6):
        grid.add(node, app(plus(1)))
    strategy = AsyncAdaComp(
        fraction_train=0.2, min_train_nodes=3, fraction_evaluate=0.1, min_evaluate_nodes=4
    )
    strategy.start(grid, record(PLAIN), num_rounds=1)
    at_first = [kind for time, _, kind in grid.log if time == 0]
    assert at_first == ["train"] * 3
    assert [kind for _, _, kind in grid.log].count("evaluate") == 4


@both
def test_a_users_function_sees_whole_replies_once_a_round(grid: FakeGrid, kind: type[AsyncAdaComp]) -> None:
    seen: list[list[str]] = []

    def function(contents: list[RecordDict], key: str) -> MetricRecord:
        seen.append([name for content in contents for name in content.array_records])
        assert key == "num-examples"
        return MetricRecord({"replies": len(contents)})

    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)), seconds=1.5)
    strategy = kind(train_metrics_aggr_fn=function, fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=2)
    assert len(seen) == 2
    assert all(len(names) >= 2 and set(names) == {"arrays"} for names in seen)
    replies = {number: m["replies"] for number, m in result.train_metrics_clientapp.items()}
    assert replies == {1: len(seen[0]), 2: len(seen[1])}


def test_a_function_that_raises_is_told_of_once_a_round(
    grid: FakeGrid, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(contents: list[RecordDict], key: str) -> MetricRecord:
        raise KeyError("no such metric")

    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)), seconds=1.5)
    logging.getLogger("flwr").addHandler(caplog.handler)
    strategy = AsyncAdaComp(train_metrics_aggr_fn=broken, fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=3)
    logging.getLogger("flwr").removeHandler(caplog.handler)
    assert sum("no such metric" in message for message in set(caplog.messages)) == 1
    assert len([r for r in caplog.records if "no such metric" in r.getMessage()]) in (3, 6), (
        "3, seen by 1 or 2"
    )
    assert result.train_metrics_clientapp == {}


@both
def test_arrays_of_a_subclass_are_refused_not_dropped(grid: FakeGrid, kind: type[AsyncAdaComp]) -> None:
    class Adam(kind):  # type: ignore[misc,valid-type]
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            arrays, metrics = super().aggregate_train(server_round, replies)
            return record({name: 2 * array for name, array in numbers(arrays).items()}), metrics

    class Looking(kind):  # type: ignore[misc,valid-type]
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            arrays, metrics = super().aggregate_train(server_round, replies)
            return arrays, None if metrics is None else MetricRecord({**metrics, "looked": 1})

    for node in (1, 2):
        grid.add(node, app(plus(1)))
    with pytest.raises(ConfigError, match="Adam.aggregate_train returns arrays of its own"):
        Adam(fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=1)
    result = Looking(fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=1)
    assert result.train_metrics_clientapp[1]["looked"] == 1


def test_training_goes_on_while_evaluate_fn_thinks(
    clock: Clock, grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It returns only once all training is over, which otherwise would wait for it for ever."""
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setattr(judging, "ThreadPoolExecutor", ThreadPoolExecutor)
    trained, seen = threading.Event(), []
    push, count = grid.push_messages, 0

    def counted(messages: Iterable[Message]) -> Iterable[str]:
        nonlocal count
        count += 1
        if count >= 8:
            trained.set()
        return push(messages)

    monkeypatch.setattr(grid, "push_messages", counted)

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        assert trained.wait(60), "training waits for the evaluation"
        seen.append((number, float(numbers(arrays)["w"][0])))
        return MetricRecord({"accuracy": number / 10})

    for node in (1, 2):
        grid.add(node, app(plus(1)))
    result = ScaDLES(fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=4, evaluate_fn=evaluate)
    assert seen == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)], "each round's own model, in order"
    assert {number: m["accuracy"] for number, m in result.evaluate_metrics_serverapp.items()} == {
        number: number / 10 for number in range(5)
    }


def test_what_evaluate_fn_raises_ends_the_run(grid: FakeGrid) -> None:
    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        raise ZeroDivisionError("no test data")

    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)))
    with pytest.raises(ZeroDivisionError, match="no test data"):
        ScaDLES().start(grid, record(PLAIN), num_rounds=1, evaluate_fn=evaluate)


@both
def test_a_resumed_run_has_all_metrics(grid: FakeGrid, tmp_path: Path, kind: type[AsyncAdaComp]) -> None:
    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy": number / 10, "f1": number / 5, "each": [0.5, float(number)]})

    for node in (1, 2):
        grid.add(node, app(plus(1)))
    first = kind(checkpoint=tmp_path).start(grid, record(PLAIN), 2, evaluate_fn=evaluate)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 2, "ki')  # torn by a crash
    again = kind(checkpoint=tmp_path).start(grid, record(PLAIN), 2, evaluate_fn=evaluate)
    for metrics in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
        known = {number: dict(record) for number, record in getattr(first, metrics).items()}
        assert {number: dict(record) for number, record in getattr(again, metrics).items()} == known
        assert 2 in known


def test_the_log_says_how_far_it_is_and_how_it_ended(
    grid: FakeGrid, caplog: pytest.LogCaptureFixture
) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)))
    logging.getLogger("flwr").addHandler(caplog.handler)
    options = {"optimizer": {"kind": "adam", "beta1": 0.5}, "defence": "clip", "fraction_evaluate": 0.0}
    ScaDLES(**options).start(grid, record(PLAIN), num_rounds=3)  # type: ignore[arg-type]
    logging.getLogger("flwr").removeHandler(caplog.handler)
    start = [message for message in caplog.messages if "──>" in message and "Metric" not in message]
    assert not any(mark in message for mark in ("Settings", "'", "{", "<") for message in start)
    said = "\n".join(caplog.messages)
    for expected in (
        "Training starts at version 0; nodes online: 2",
        "[ROUND 2/3] version 4, ",
        " updates a minute; since the start: applied = 4",
        "Replies: mode = rounds, rule = none, learning_rate = 1, ",
        "Optimizer: kind = adam, beta1 = 0.5",
        "Defence: mode = clip, ",
        "Nodes: fraction_train = 1, fraction_evaluate = 0, ",
        "Nodes with the mod send: select = 0.1, balance = 1, ",
        "Checkpoint: none",
        "Training is over after round 3, at version 6; updates: 6 in ",
    ):
        assert expected in said


@pytest.mark.parametrize("arguments", [{"num_rounds": "3"}, {"num_rounds": 2.5}, {"timeout": "10"}])
def test_what_start_cannot_take_is_named(arguments: dict[str, Any], grid: FakeGrid) -> None:
    with pytest.raises(ConfigError, match=r"^num_rounds = .*, timeout = .*: they must be numbers$"):
        AsyncAdaComp().start(grid, ArrayRecord(), **arguments)
