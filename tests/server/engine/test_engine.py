"""The path of an update: admitted or refused, journaled, applied once, answered in order."""

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.descent.regime import Regime
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.engine.outcomes import Published
from edgeflock.shared.codecs import moments
from edgeflock.shared.errors import BadSequence, BaseInFuture, NonFinite, Refused, RunComplete, WrongDtype
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.protocol.messages import Receipt
from tests.server.pushes import (
    LAYOUT,
    REGIME,
    THETA,
    Watched,
    commit,
    journal_rows,
    kinds,
    open_engine,
    push,
    receipt,
    recovered,
    sparse_update,
    with_pull,
)


def test_an_update_is_journaled_applied_and_acknowledged(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, Regime("adacomp", 0.5, 6))
    device = engine.device_id("one")
    one = push(device, sparse_update(7, 0, {0: 1.0, 24: -2.0}))
    assert commit(engine, [one]) == [Receipt(7, 1, None)]
    expected = THETA.copy()
    expected[0] -= np.float32(0.5)
    expected[24] -= np.float32(-1.0)
    assert engine.theta()[1].tobytes() == expected.tobytes()
    assert journal_rows(tmp_path) == [(1, device, 7, 1_700_000_000.0, 0.5, 10, one.frame)]
    assert engine.receipts.last_sequence(device) == 7
    assert engine.receipts.last_sequence(device + 1) == 0


def test_answers_come_in_the_order_of_the_group(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path)
    one, two = engine.device_id("one"), engine.device_id("two")
    answers = commit(
        engine,
        [
            push(one, sparse_update(1, 0, {1: 1.0})),
            push(two, sparse_update(1, 5, {1: 1.0})),
            push(two, sparse_update(1, 1, {1: 1.0})),
            push(one, sparse_update(2, 0, {2: math.nan})),
            push(one, sparse_update(2, 0, {2: 1.0})),
        ],
    )
    assert kinds(answers) == [Receipt, BaseInFuture, Receipt, NonFinite, Receipt]
    assert [answer for answer in answers if isinstance(answer, Receipt)] == [
        Receipt(1, 1, None),
        Receipt(1, 2, None),
        Receipt(2, 3, None),
    ]
    assert commit(engine, []) == []


def test_a_report_of_second_moments_is_answered_with_the_fleet_s(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path)
    one, two = engine.device_id("one"), engine.device_id("two")
    lines = int(LAYOUT.parameters.lines[-1])
    reports = [moments.encode(np.full(lines, level, np.float32)) for level in (4, 16, 8)]
    first = replace(sparse_update(1, 0, {1: 1.0}), moments=reports[0])
    second = replace(sparse_update(1, 0, {1: 1.0}), moments=reports[1])
    assert commit(engine, [push(one, first), push(two, second)]) == [
        Receipt(1, 1, None, reports[0]),
        Receipt(1, 2, None, reports[2]),
    ]
    assert commit(engine, [push(one, first)]) == [Receipt(1, 1, None)], "told once"
    refused = replace(sparse_update(2, 0, {1: 1.0}), moments=moments.encode(np.ones(3, np.float32)))
    before = engine.theta()
    assert kinds(commit(engine, [push(one, refused)])) == [WrongDtype]
    assert engine.theta()[0] == before[0]
    assert engine.theta()[1].tobytes() == before[1].tobytes()
    assert commit(engine, [push(one, replace(refused, moments=b""))]) == [Receipt(2, 3, None)]


# Exactly once


def assert_counted_once(run: Watched) -> None:
    """Every update of the run, sent again in any order, gets its first receipt and changes nothing."""
    receipts = [Receipt(one.update.sequence, version + 1, None) for version, one in enumerate(run.pushes)]
    order = np.random.default_rng(0).permutation(len(receipts)).tolist()
    assert commit(run.engine, [run.pushes[i] for i in order]) == [receipts[i] for i in order]
    run.check()


def test_a_resent_update_gets_its_first_receipt(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    for size in (1, 4, 3):
        run.commit(size)
        assert_counted_once(run)
    assert len(journal_rows(tmp_path)) == 8


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("keep", [True, False])
def test_also_after_a_restart(tmp_path: Path, keep: bool, killed: bool) -> None:
    run = Watched(tmp_path, bounds=EngineLimits(snapshot_every=2, keep_updates=keep))
    for _ in range(12):
        run.commit()
    run.reopen(killed=killed)
    assert_counted_once(run)
    run.reopen()
    assert_counted_once(run)


def test_also_within_one_group(tmp_path: Path) -> None:
    """The line drops, the device is back and sends again before the group is on the disk."""
    _, engine = open_engine(tmp_path)
    device = engine.device_id("one")
    first, second = (push(device, sparse_update(n, 0, {3: 1.0})) for n in (1, 2))
    answers = commit(engine, [first, first, second, second])
    assert answers == [Receipt(1, 1, None), Receipt(1, 1, None), Receipt(2, 2, None), Receipt(2, 2, None)]
    assert engine.published.version == 2
    assert len(journal_rows(tmp_path)) == 2


def test_a_resent_update_may_ask_for_the_model(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    run.commit(3)
    (answer,) = commit(run.engine, [with_pull(run.pushes[0])])
    assert isinstance(answer, Receipt)
    assert answer.version == 1
    assert answer.model == run.engine.outlet.model(run.pushes[0].update.base)
    assert answer.model is not None
    assert answer.model.version == 3


def test_sequences_count_for_each_device_alone(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path)
    one, two = engine.device_id("one"), engine.device_id("two")
    assert one != two
    assert engine.device_id("one") == one
    update = sparse_update(1, 0, {3: 1.0})
    assert commit(engine, [push(one, update), push(two, update)]) == [
        Receipt(1, 1, None),
        Receipt(1, 2, None),
    ]


@pytest.mark.parametrize("skipped", [0, 1, 4])
def test_a_sequence_below_the_last_that_was_never_accepted(tmp_path: Path, skipped: int) -> None:
    _, engine = open_engine(tmp_path)
    device = engine.device_id("one")
    commit(engine, [push(device, sparse_update(5, 0, {3: 1.0}))])
    (answer,) = commit(engine, [push(device, sparse_update(skipped, 0, {3: 1.0}))])
    assert type(answer) is BadSequence
    assert engine.published.version == 1


# What is no number


@pytest.fixture
def run(tmp_path: Path) -> Watched:
    """A run at version 8 with a window of 6: bases 3 to 8."""
    watched = Watched(tmp_path)
    watched.commit(8)
    watched.check()
    return watched


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_does_not_stop_the_server(run: Watched, loss: float) -> None:
    """Accepted or refused, but answered; and so are the others of its group."""
    newcomer, other = run.engine.device_id("newcomer"), run.engine.device_id("other")
    good = sparse_update(1, 8, {1: 1.0, 5: 2.0})
    answers = commit(run.engine, [push(newcomer, replace(good, loss=loss)), push(other, good)])
    assert isinstance(answers[0], Receipt | Refused)
    assert isinstance(answers[1], Receipt)
    assert len(journal_rows(run.directory)) == run.engine.published.version
    assert recovered(run.directory, REGIME).theta.tobytes() == run.engine.theta()[1].tobytes()


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_an_evaluation_of_a_diverged_model_is_kept(run: Watched, loss: float) -> None:
    run.engine.steering.record(Evaluation(8, 1.0, loss, 0.1, 100, 200), [])
    run.engine.steering.record(Evaluation(9, 2.0, 0.5, None, 101, 201), [(run.devices[0], 3, 4)])
    kept = run.journal.evaluations()
    assert [evaluation.version for evaluation in kept] == [8, 9]
    assert kept[0].loss is None or not math.isfinite(kept[0].loss)
    assert kept[1] == Evaluation(9, 2.0, 0.5, None, 101, 201)


# Publishing


def test_nothing_leaves_before_the_disk_has_it(tmp_path: Path) -> None:
    """The first half writes nothing and puts no model into a receipt; the second gives all the same one."""
    run = Watched(tmp_path)
    group = [with_pull(one) for one in run.prepare(3)]
    staged = run.engine.stage(group)
    receipts = [Receipt(one.update.sequence, 1 + i, None) for i, one in enumerate(group)]
    assert [receipt(answer) for _, answer in staged.answers] == receipts
    assert journal_rows(tmp_path) == []
    assert run.engine.published == Published(0, REGIME.learning_rate, end_reason=None)
    settled = run.engine.publish(staged)
    assert run.engine.published == Published(3, REGIME.learning_rate, end_reason=None)
    assert len(journal_rows(tmp_path)) == 3
    for one, (push_, answer_) in zip(group, settled, strict=True):
        assert push_ is one
        answer = receipt(answer_)
        assert isinstance(answer, Receipt)
        assert answer.model == run.engine.outlet.model(one.update.base)
        assert answer.model is not None
        assert answer.model.version == 3


def test_theta_is_a_copy(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path)
    _, theta = engine.theta()
    theta[:] = 0
    assert engine.theta()[1].tobytes() == THETA.tobytes()


# Bounds


def test_a_complete_run_takes_no_more_but_answers_again(tmp_path: Path) -> None:
    run = Watched(tmp_path, bounds=EngineLimits(updates=4))
    complete = [run.engine.published.complete]
    run.commit(3)
    complete.append(run.engine.published.complete)
    late = push(run.engine.device_id("newcomer"), sparse_update(1, 3, {0: 1.0}))
    assert kinds(commit(run.engine, [*run.prepare(1), late])) == [Receipt, RunComplete]
    complete.append(run.engine.published.complete)
    assert_counted_once(run)
    run.reopen()
    complete.append(run.engine.published.complete)
    assert complete == [False, False, True, True]
    assert kinds(commit(run.engine, [late])) == [RunComplete]
    assert_counted_once(run)


def test_a_run_without_a_bound_is_never_complete(tmp_path: Path) -> None:
    run = Watched(tmp_path, bounds=EngineLimits(updates=0))
    assert not run.engine.published.complete
    run.commit(2)
    assert not run.engine.published.complete


def snapshots(directory: Path) -> list[int]:
    with closing(sqlite3.connect(directory / "journal.sqlite")) as db:
        return [version for (version,) in db.execute("SELECT version FROM snapshots ORDER BY version")]


def test_the_first_and_the_newest_two_snapshots_are_kept(tmp_path: Path) -> None:
    run = Watched(tmp_path, bounds=EngineLimits(snapshot_every=3))
    kept = []
    for _ in range(10):
        run.commit()
        kept.append(snapshots(tmp_path))
    assert kept == [[0], [0], [0, 3], [0, 3], [0, 3], [0, 3, 6], [0, 3, 6], [0, 3, 6], [0, 6, 9], [0, 6, 9]]
    run.engine.close()
    assert snapshots(tmp_path) == [0, 9, 10]


def test_a_group_that_passes_several_snapshots_makes_one(tmp_path: Path) -> None:
    run = Watched(tmp_path, bounds=EngineLimits(snapshot_every=2))
    run.commit(7)
    assert snapshots(tmp_path) == [0, 7]


def test_dropped_updates_keep_their_facts(tmp_path: Path) -> None:
    """Only the records go, and only of updates that no admissible base needs."""
    run = Watched(tmp_path, bounds=EngineLimits(snapshot_every=4, keep_updates=False))
    for _ in range(14):
        run.commit()
    rows = journal_rows(tmp_path)
    # Window 6, newest snapshot at 12: sigma needs the updates that made 7 to 12.
    assert [row[0] for row in rows if row[-1] is None] == [1, 2, 3, 4, 5, 6]
    assert [row[2] for row in rows] == [one.update.sequence for one in run.pushes]
    run.slow.assert_equals(recovered(tmp_path, REGIME))


def test_an_engine_needs_no_bounds(tmp_path: Path) -> None:
    journal, _ = open_engine(tmp_path)
    engine = Engine(journal, LAYOUT, recovered(tmp_path, REGIME), Asynchronous())
    assert not engine.published.complete
    assert engine.published.version == 0
