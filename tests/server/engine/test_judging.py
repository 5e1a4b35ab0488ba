"""When a run ends by its evaluations."""

from pathlib import Path

import pytest

from edgeflock.server.coordination import Push
from edgeflock.server.engine import Criteria, Engine, EvaluationJudge
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.opening import open_engine
from edgeflock.shared.errors import ConfigError, RunComplete
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.settings.config import parse
from tests.server.pushes import LAYOUT, THETA, commit, kinds, sparse_update


def evaluation(version: int, accuracy: float | None, loss: float | None = 1.0) -> Evaluation:
    return Evaluation(version, 100.0 + version, loss, accuracy, 10 * version, 20 * version)


def opened(path: Path, *settings: str) -> Engine:
    config = parse(overrides=["coordination.average=0", *settings], tables=CHOICES)
    journal = Journal(path / "journal.sqlite")
    if journal.run() is None:
        journal.begin_run("run", "package:Model", LAYOUT, THETA, 0.0)
    return open_engine(journal, LAYOUT, config)


def pushed(engine: Engine, number: int) -> list[type]:
    device = engine.device_id("a")
    update = sparse_update(number, engine.published.version, {number % 7: 1.0})
    return kinds(commit(engine, [Push(device, 100.0 + number, update, wire.encode(update))]))


ACCURACIES = (0.1, 0.5, 0.4, 0.5, 0.3, 0.2)


@pytest.mark.parametrize(
    ("setting", "after", "why"),
    [
        ("end.accuracy=0.5", 2, "it has reached an accuracy of 0.5"),
        ("end.patience=3", 5, "3 evaluations were no better than that of version 2"),
        ("end.seconds=3", 4, "it has had its 3 seconds"),
        ("end.bytes=90", 3, "it has had its 90 bytes"),
    ],
)
def test_it_ends_and_stays_ended_until_the_settings_say_otherwise(
    setting: str, after: int, why: str, tmp_path: Path
) -> None:
    engine = opened(tmp_path, setting)
    for number, accuracy in enumerate(ACCURACIES, 1):
        assert engine.published.end_reason is None
        pushed(engine, number)
        engine.steering.record(evaluation(number, accuracy), [])
        if number == after:
            break
    assert engine.published.complete
    assert why in str(engine.published.end_reason)
    assert pushed(engine, 7) == [RunComplete]
    engine.steering.record(evaluation(after + 1, 1.0), [])  # that of the last version, however good
    assert engine.published.complete
    engine.abandon()
    again = opened(tmp_path, setting)
    assert why in str(again.published.end_reason)
    again.steering.record(None, [], 1e9, 1 << 40)
    assert why in str(again.published.end_reason)
    again.close()
    further = opened(tmp_path, "end.accuracy=0")
    assert further.published.end_reason is None
    assert pushed(further, 8) != [RunComplete]
    further.close()


def test_what_waits_in_a_round_is_told_that_it_is_over(tmp_path: Path) -> None:
    engine = opened(tmp_path, "end.accuracy=0.5", "coordination.mode=rounds", "coordination.quorum=2")
    device, update = engine.device_id("a"), sparse_update(1, 0, {3: 1.0})
    assert commit(engine, [Push(device, 0.0, update, wire.encode(update))]) == [None]
    engine.steering.record(evaluation(0, 0.6), [])
    assert [type(answer) for _, answer in engine.commit([], 0.0)] == [RunComplete]
    engine.close()


def test_the_best_is_by_accuracy_or_else_by_loss_and_never_no_number() -> None:
    judge = EvaluationJudge(Criteria())
    best = []
    for number, (accuracy, loss) in enumerate(
        [(None, 2.0), (None, None), (None, 3.0), (None, 1.0), (None, 1.0), (None, 0.5)]
    ):
        one = evaluation(number, accuracy, loss)
        best.append(judge.is_best(one))
        judge.take(one)
    assert best == [True, False, False, True, False, True]
    assert judge.best is not None
    assert judge.best.version == 5


@pytest.mark.parametrize(
    "setting", ["end.accuracy=1.1", "end.patience=-1", "end.seconds=inf", "end.bytes=-1"]
)
def test_what_cannot_be_is_named(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.split("=")[0]):
        parse(overrides=[setting])
