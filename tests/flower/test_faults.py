"""Nodes that vanish, are late, fail or answer nonsense: counted, and survived."""

import logging
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from edgeflock.server.flower import AsyncAdaComp, ScaDLES
from edgeflock.server.flower.messages import Keys, Template, read_update
from edgeflock.server.flower.nodes import SentModel
from edgeflock.server.flower.run import reason_of
from edgeflock.shared.codecs import entries, sparse, values
from edgeflock.shared.errors import BadStatistics, ConfigError
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Update
from tests.flower.apps import PLAIN, Change, Numbers, app, numbers, plus, record
from tests.flower.grid import FakeGrid


def shot(change: Change, bad: Change, when: int = 2) -> Change:
    """`change`, but the time number `when` it is `bad`."""
    calls = 0

    def train(model: dict[str, Numbers]) -> dict[str, Numbers]:
        nonlocal calls
        calls += 1
        return (bad if calls == when else change)(model)

    return train


def fails(model: dict[str, Numbers]) -> dict[str, Numbers]:
    raise ZeroDivisionError("no data")


FAULTS: dict[str, tuple[Change, str]] = {
    "an exception": (fails, "error-reply"),
    "NaN": (lambda m: m | {"w": np.full(4, np.nan, np.float32)}, "non-finite"),
    "infinity once in single precision": (lambda m: m | {"w": np.full(4, 1e300)}, "non-finite"),
    "another shape": (lambda m: m | {"w": np.zeros(5, np.float32)}, "layout-mismatch"),
    "a transposed shape": (lambda m: m | {"b": np.zeros((1, 2), np.float32)}, "layout-mismatch"),
    "a missing array": (lambda m: {"w": m["w"]}, "layout-mismatch"),
    "text": (lambda m: m | {"w": np.array(["a", "b", "c", "d"])}, "layout-mismatch"),
}


@pytest.mark.parametrize("kind", [AsyncAdaComp, ScaDLES])
@pytest.mark.parametrize(("bad", "outcome"), FAULTS.values(), ids=FAULTS.keys())
def test_a_bad_reply_is_counted_and_changes_nothing(
    grid: FakeGrid, kind: type[AsyncAdaComp] | type[ScaDLES], bad: Change, outcome: str
) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(shot(plus(1), bad)))
    strategy = kind(fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=4)
    assert strategy.outcomes[outcome] == 1
    assert sum(strategy.outcomes.values()) == strategy.outcomes["applied"] + 1
    w = numbers(result.arrays)["w"]
    assert np.isfinite(w).all()
    assert w[0] >= 4


@pytest.mark.parametrize("mod", [False, True])
@pytest.mark.parametrize("kind", [AsyncAdaComp, ScaDLES])
def test_no_variance_below_zero_counts(
    grid: FakeGrid, kind: type[AsyncAdaComp] | type[ScaDLES], mod: bool
) -> None:
    model = PLAIN | {"norm.running_var": np.ones(3, np.float32)}

    def negative(model: dict[str, Numbers]) -> dict[str, Numbers]:
        return model | {"norm.running_var": np.array([1, -0.5, 1], np.float32)}

    grid.add(1, app(lambda model: model, mod=mod))
    grid.add(2, app(shot(lambda model: model, negative), mod=mod))
    strategy = kind(fraction_evaluate=0.0)
    result = strategy.start(grid, record(model), num_rounds=4)
    assert strategy.outcomes["bad-statistics"] == 1
    np.testing.assert_allclose(numbers(result.arrays)["norm.running_var"], 1, rtol=1e-3)


def test_what_is_left_of_the_first_statistics_is_not_a_node_s_to_say() -> None:
    """An update of the mod says 0 behind its statistics: 1 would leave nothing to divide by."""
    arrays = record(PLAIN | {"norm.running_var": np.ones(3, np.float32)})
    template = Template(arrays, ("running_mean", "running_var"), follow=True)
    sent, keys = SentModel(0, 1, template.theta), Keys("arrays", "config", "num-examples")
    where, statistics = np.arange(2), np.array([1, 1, 1, 1], np.float32)
    for left in (1, 0):
        statistics[-1] = left
        coded = entries.encode(np.ones(2, np.float32), where, template.layout.parameters, sparse.RAW, 0)
        values_of = coded.values + values.encode_statistics(statistics)
        update = Update(1, 0, coded.index_mode, coded.value_mode, 2, coded.indices, values_of, 0.5, 1, False)
        reply = blob(wire.encode(update))
        if left:
            with pytest.raises(BadStatistics, match="edgeflock/remains is not 0"):
                read_update(reply, sent, template, keys)
        else:
            assert read_update(reply, sent, template, keys).count == 2


def reply_with(content: Callable[[Message], RecordDict]) -> ClientApp:
    """An app that answers its second training message like this."""
    client, calls = app(plus(1)), 0

    def mod(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        nonlocal calls
        calls += 1
        return Message(content(message), reply_to=message) if calls == 2 else call_next(message, context)

    wrapped = ClientApp(mods=[mod])
    wrapped.train()(client._registered_funcs["train.default"])
    return wrapped


GOOD = RecordDict({"a": record(PLAIN), "m": MetricRecord({"num-examples": 1})})


def blob(octets: bytes) -> RecordDict:
    arrays = ArrayRecord({"update": Array("uint8", (len(octets),), "edgeflock.update.v1", octets)})
    return RecordDict({"a": arrays, "m": MetricRecord({"num-examples": 1})})


def damaged(data: bytes, stype: str = "numpy.ndarray") -> RecordDict:
    arrays = ArrayRecord({"w": Array("float32", (4,), stype, data), "b": Array(PLAIN["b"])})
    return RecordDict({"a": arrays, "m": MetricRecord({"num-examples": 1})})


HUGE = Array(np.zeros(4, np.float32)).data.replace(b"(4,)", b"(9999999999999,)")


def counted(examples: float) -> RecordDict:
    return RecordDict({"a": record(PLAIN), "m": MetricRecord({"num-examples": examples})})


REPLIES: dict[str, tuple[RecordDict, str]] = {
    "nothing": (RecordDict(), "malformed"),
    "two models": (RecordDict({"a": record(PLAIN), "b": record(PLAIN)}), "malformed"),
    "no number of samples": (RecordDict({"a": record(PLAIN)}), "bad-samples"),
    "no samples": (counted(0), "bad-samples"),
    "NaN samples": (counted(np.nan), "bad-samples"),
    "too many": (counted(1 << 40), "bad-samples"),
    "no numpy": (damaged(b"\x00\x01\x02"), "malformed"),
    "a pickle": (damaged(b"\x80\x04N."), "malformed"),
    "an array cut short": (damaged(Array(PLAIN["w"]).data[:-3]), "malformed"),
    "an array that says it is huge": (damaged(HUGE), "malformed"),
    "another serialisation": (damaged(b"", "torch.save"), "malformed"),
    "an empty blob": (blob(b""), "malformed"),
    "a blob of another record": (blob(bytes.fromhex("9203c0")), "malformed"),
    "an update of another time": (
        blob(bytes.fromhex("9d050700 00 c400 c400 f0 0a 00 01 00 c0 c2".replace(" ", ""))), "bad-sequence"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "outcome"), REPLIES.values(), ids=REPLIES.keys())
def test_a_strange_reply_is_counted_and_changes_nothing(
    grid: FakeGrid, content: RecordDict, outcome: str
) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, reply_with(lambda _: content))
    strategy = ScaDLES(fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=3)
    assert strategy.outcomes == {"applied": 5, outcome: 1}
    np.testing.assert_allclose(numbers(result.arrays)["w"], 3, rtol=1e-6)


def test_a_node_that_vanishes_is_done_without(grid: FakeGrid) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)), seconds=4)
    grid.clock.at(2, lambda: grid.remove(2))
    strategy = AsyncAdaComp(updates_per_round=6, fraction_evaluate=0.0)
    strategy.start(grid, record(PLAIN), num_rounds=1)
    assert strategy.outcomes == {"applied": 6, "vanished": 1}


def test_a_round_does_not_wait_for_a_node_that_vanished(grid: FakeGrid) -> None:
    for node in (1, 2, 3):
        grid.add(node, app(plus(node)), seconds=node)
    grid.clock.at(2.5, lambda: grid.remove(3))
    strategy = ScaDLES(fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=1)
    assert strategy.outcomes == {"applied": 2, "vanished": 1}
    np.testing.assert_array_equal(numbers(result.arrays)["w"], 1.5)


def test_a_node_that_comes_late_takes_part(grid: FakeGrid) -> None:
    grid.add(1, app(plus(1)))
    grid.clock.at(3, lambda: grid.add(2, app(plus(100))))
    strategy = AsyncAdaComp(updates_per_round=12, min_available_nodes=1, fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=1)
    assert numbers(result.arrays)["w"][0] > 100


def test_training_waits_until_enough_nodes_are_there(grid: FakeGrid) -> None:
    grid.clock.at(5, lambda: grid.add(1, app(plus(1))))
    grid.clock.at(9, lambda: grid.add(2, app(plus(1))))
    ScaDLES(fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=1)
    assert [time for time, _, _ in grid.log] == [9, 9]


def test_a_node_that_times_out_is_asked_anew(grid: FakeGrid) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(100)), seconds=50)
    strategy = AsyncAdaComp(updates_per_round=10, fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=1, timeout=4)
    assert strategy.outcomes == {"applied": 10, "timed-out": 2}
    np.testing.assert_allclose(numbers(result.arrays)["w"], 10 / 2, rtol=1e-6)


@pytest.mark.parametrize("answer", [[], [None], [""]], ids=["in simulations", "deployed", "refused"])
def test_a_message_that_flower_does_not_take_is_sent_again(
    grid: FakeGrid, monkeypatch: pytest.MonkeyPatch, answer: list[str | None]
) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)))
    push, refused = grid.push_messages, [2, 2]

    def push_or_not(messages: Iterable[Message]) -> Iterable[str | None]:
        (message,) = messages
        if message.metadata.dst_node_id in refused:
            refused.pop()
            return answer
        return push([message])

    monkeypatch.setattr(grid, "push_messages", push_or_not)
    strategy = AsyncAdaComp(updates_per_round=8, fraction_evaluate=0.0)
    strategy.start(grid, record(PLAIN), num_rounds=1)
    assert strategy.outcomes == {"applied": 8, "unsent": 2}


def test_a_reply_that_comes_twice_counts_once(grid: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)))
    pull = grid.pull_messages
    monkeypatch.setattr(grid, "pull_messages", lambda ids: [reply for reply in pull(ids) for _ in range(2)])
    strategy = AsyncAdaComp(rule="none", updates_per_round=6, fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=1)
    assert strategy.outcomes == {"applied": 6}
    np.testing.assert_array_equal(numbers(result.arrays)["w"], 6 / 2)


def test_an_update_from_beyond_the_window_is_refused(grid: FakeGrid) -> None:
    grid.add(1, app(plus(1)), seconds=1)
    grid.add(2, app(plus(100)), seconds=5.5)
    strategy = AsyncAdaComp(window=4, updates_per_round=9, fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=1)
    assert strategy.outcomes == {"applied": 9, "base-expired": 1}
    np.testing.assert_allclose(numbers(result.arrays)["w"], 9 / 2, rtol=1e-6)


@pytest.mark.parametrize("defence", ["none", "clip"])
def test_a_reply_that_is_far_too_large_is_cut_short(defence: str, grid: FakeGrid) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1000)), seconds=1.5)
    strategy = AsyncAdaComp(defence=defence, rule="none", updates_per_round=6, fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=1)
    assert strategy.outcomes == {"applied": 6}
    assert (numbers(result.arrays)["w"].max() < 30) == (defence == "clip")


@pytest.mark.parametrize(("aggregate", "expected"), [("mean", 34.0), ("median", 1.0)])
def test_a_round_may_go_by_the_median(aggregate: str, expected: float, grid: FakeGrid) -> None:
    for node, step in enumerate((1, 100, 1), 1):
        grid.add(node, app(plus(step)))
    strategy = ScaDLES(aggregate=aggregate, fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=1)
    np.testing.assert_allclose(numbers(result.arrays)["w"], expected, rtol=1e-6)


def test_a_strategy_has_no_gradients_to_score_by() -> None:
    with pytest.raises(ConfigError, match=r"defence = 'score' needs samples on the server, .* use 'clip'"):
        AsyncAdaComp(defence="score")
    with pytest.raises(ConfigError, match="defence = 'clipp'"):
        ScaDLES(defence="clipp")


def test_a_quorum_leaves_the_slow_behind(grid: FakeGrid) -> None:
    for node in (1, 2, 3):
        grid.add(node, app(plus(node)), seconds=1 if node < 3 else 2.5)
    strategy = ScaDLES(quorum=2, fraction_evaluate=0.0)
    result = strategy.start(grid, record(PLAIN), num_rounds=3)
    np.testing.assert_array_equal(numbers(result.arrays)["w"], 4.5)
    assert strategy.outcomes == {"applied": 6, "base-expired": 1}


def test_a_deadline_ends_a_round(grid: FakeGrid) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(100)), seconds=1000)
    ScaDLES(deadline=10, fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=1)
    assert 10 < grid.clock.now < 13


def test_an_evaluation_that_never_ends_holds_up_nothing(grid: FakeGrid) -> None:
    """The slow node evaluates round 1 for ever: it is not asked again, and at the end is waited for no longer
    than the timeout."""
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)), seconds=200)
    strategy = AsyncAdaComp(updates_per_round=3)
    result = strategy.start(grid, record(PLAIN), num_rounds=4, timeout=100)
    assert len(result.train_metrics_clientapp) == 4
    assert [kind for _, node, kind in grid.log if node == 2].count("evaluate") == 2
    assert 2 in result.evaluate_metrics_clientapp


def test_a_run_in_which_nothing_works_says_so(grid: FakeGrid) -> None:
    grid.add(1, app(fails))
    grid.add(2, app(fails))
    with pytest.raises(ConfigError, match=r"4 failures in a row.*error-reply.*ZeroDivisionError.*no data"):
        AsyncAdaComp().start(grid, record(PLAIN), num_rounds=1)
    assert grid.clock.now < 5, "at once: nobody waits for what never worked"


def test_a_run_in_which_nothing_works_any_more_says_so_later(grid: FakeGrid) -> None:
    for node in (1, 2):
        grid.add(node, app(shot(fails, plus(1), when=1)))
    with pytest.raises(ConfigError, match=r"20 failures in a row.*error-reply"):
        AsyncAdaComp(fraction_evaluate=0.0).start(grid, record(PLAIN), num_rounds=10)
    assert grid.clock.now > 60, "failing nodes are left alone longer each time"


@pytest.mark.parametrize("late", [1, 2])
def test_a_node_that_only_begins_badly_is_not_given_up(grid: FakeGrid, late: int) -> None:
    """Nor are those that are gone, whose apps nobody has seen."""
    grid.add(1, app(shot(plus(1), fails, when=1)))
    grid.add(2, app(shot(plus(1), fails, when=1)), seconds=late)
    strategy = AsyncAdaComp(updates_per_round=6, fraction_evaluate=0.0)
    strategy.start(grid, record(PLAIN), num_rounds=1)
    assert strategy.outcomes["error-reply"] == 2
    assert strategy.outcomes["applied"] >= 6


@pytest.mark.parametrize(
    "options",
    [{"rule": "adacom"}, {"select": 2}, {"values": "scale"}, {"fraction_train": 2}, {"fraction_train": 0.0}],
)
def test_an_option_that_cannot_be_names_itself(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        AsyncAdaComp(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"w": np.zeros(3, np.complex64)}, "complex64"),
        ({"w": np.full(3, np.nan, np.float32)}, "NaN"),
        ({"n": np.zeros(3, np.int64)}, "no parameters"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(
    grid: FakeGrid, model: dict[str, Numbers], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        AsyncAdaComp().start(grid, record(model))


def said_by(run: Callable[[], object], caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log of a run."""
    logging.getLogger("flwr").addHandler(caplog.handler)
    run()
    logging.getLogger("flwr").removeHandler(caplog.handler)
    return caplog.messages


def test_an_evaluation_that_fails_is_said_with_its_node_and_why(
    grid: FakeGrid, caplog: pytest.LogCaptureFixture
) -> None:
    broken = app(plus(1))
    broken._registered_funcs.clear()

    @broken.train()
    def train(message: Message, context: Context) -> Message:
        raise KeyError("no camera\nat all")

    @broken.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        raise OSError("the disk is gone")

    grid.add(1, app(plus(1)))
    grid.add(2, broken)
    said = said_by(lambda: AsyncAdaComp().start(grid, record(PLAIN), num_rounds=1), caplog)
    assert "Node 2: its evaluation of round 1: error-reply: OSError: the disk is gone" in said
    assert "Node 2: error-reply: KeyError: 'no camera\\nat all'" in said
    assert not any("<class" in line for line in said)


def test_who_is_waited_for_at_the_end_is_said(grid: FakeGrid, caplog: pytest.LogCaptureFixture) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1)), seconds=1e6)
    said = said_by(lambda: AsyncAdaComp().start(grid, record(PLAIN), 1, timeout=50), caplog)
    assert "Waiting for evaluations of node 1, 2, for 50 s at most" in said
    assert "Node 2: its evaluation of round 1: timed-out: no answer came in time" in said
    assert not any(line.rstrip().endswith(":") for line in said if line.startswith("Node"))


def test_numbers_of_numpy_are_shown_as_numbers(grid: FakeGrid, caplog: pytest.LogCaptureFixture) -> None:
    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        recall: list[float] = [np.float64(0.5)]
        return MetricRecord({"accuracy": np.float64(0.25), "recall": recall})

    for node in (1, 2):
        grid.add(node, app(plus(1)))
    strategy = AsyncAdaComp(fraction_evaluate=0.0)
    said = said_by(lambda: strategy.start(grid, record(PLAIN), 1, evaluate_fn=evaluate), caplog)
    assert "Global evaluation after round 1: {'accuracy': 0.25, 'recall': [0.5]}" in said


def test_a_refusal_names_the_strategys_option(grid: FakeGrid, caplog: pytest.LogCaptureFixture) -> None:
    grid.add(1, app(plus(1)))
    grid.add(2, app(plus(1e30)))
    strategy = AsyncAdaComp(fraction_evaluate=0.0)
    said = said_by(lambda: strategy.start(grid, record(PLAIN), num_rounds=1), caplog)
    refused = [line for line in said if line.startswith("Node 2: step-too-large: ")]
    assert refused
    assert all(line.endswith(" or lower learning_rate") for line in refused)


def test_an_evaluation_without_samples_does_not_cost_those_of_others(
    grid: FakeGrid, caplog: pytest.LogCaptureFixture
) -> None:
    lacking = app(plus(1))
    lacking._registered_funcs.clear()

    @lacking.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"total": 1e6})}), reply_to=message)

    @lacking.train()
    def train(message: Message, context: Context) -> Message:
        return app(plus(1))(message, context)

    grid.add(1, app(plus(1)))
    grid.add(2, lacking)
    results = []
    said = said_by(lambda: results.append(ScaDLES().start(grid, record(PLAIN), num_rounds=1)), caplog)
    assert results[0].evaluate_metrics_clientapp[1] == {"total": 6.0}
    assert "Node 2: its evaluation of round 1 does not count: its metrics lack 'num-examples'" in said


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("<class 'ValueError'>:<'no camera'>", "ValueError: no camera"),
        ("<class 'a.b.<locals>.Lost'>:<'it's\ngone'>", "Lost: it's gone"),
        (
            "<class 'ray.exceptions.RayTaskError(ClientAppException)'>:<'ray::ClientAppActor.run() (pid=7, "
            'repr=<ray.Actor object at 0x7f4e>)\n    ^^^^\n  File "app.py", line 161, in __call__\n'
            "ValueError: no camera\n\nThis was the direct cause:\n\nray::ClientAppActor.run()\n"
            "flwr.clientapp.client_app.ClientAppException: \nException ClientAppException occurred. "
            "Message: no camera'>",
            "ClientAppException: no camera",
        ),
        ("An exception was raised when attempting to load `ClientApp`", None),
    ],
    ids=["deployed", "local class", "in simulations", "a text"],
)
@pytest.mark.usefixtures("clock")
def test_what_an_app_raised_is_said_in_a_line(reason: str, said: str | None) -> None:
    question = Message(RecordDict(), 1, "train")
    reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=question)
    assert reason_of(reply) == (said or reason)
