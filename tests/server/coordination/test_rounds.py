"""Synchronous rounds: ScaDLES' weighted aggregation, and what a journal makes of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.coordination.cohort import Cohort
from edgeflock.server.coordination.coordinator import Push
from edgeflock.server.coordination.modes import create_coordinator
from edgeflock.server.coordination.rounds import RoundEnd, Rounds
from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.step import Step
from edgeflock.server.engine.engine import Engine
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.errors import BadSequence, BaseExpired, BaseInFuture, Superseded
from edgeflock.shared.protocol.messages import Receipt, Update
from edgeflock.shared.settings.coordination import CoordinationSettings
from tests.server.pushes import (
    LAYOUT,
    NORMED,
    THETA,
    commit,
    copy_as_killed,
    dense_update,
    end_round,
    journal_rows,
    open_engine,
    push,
    recovered,
    sparse_update,
    with_statistics,
)

ROUNDS = Regime("adacomp", 0.1, 6, rounds=True)


STEP = Step(0, np.zeros(0, np.int64), np.zeros(0, np.float32))


def offer(rounds: Rounds, device: int, now: float = 0.0) -> Push:
    """An update of `device`; held, as all are."""
    one = push(device, sparse_update(1, 0, {}))
    assert rounds.offer(one, STEP, now) is None
    return one


def applied(rounds: Rounds, now: float) -> list[int] | None:
    """The devices whose updates apply by `now`."""
    verdict = rounds.tick(now)
    return None if verdict is None else [one.device for one, _ in verdict.updates]


class TestWhenARoundEnds:
    def test_once_everybody_present_has_contributed(self) -> None:
        rounds = Rounds(RoundEnd(quorum=0, deadline=30), LAYOUT)
        for device in (1, 2, 3):
            rounds.add_device(device)
        offer(rounds, 1)
        offer(rounds, 2)
        assert applied(rounds, 29) is None
        offer(rounds, 3)
        assert applied(rounds, 29) == [1, 2, 3]
        assert rounds.held_updates == {}

    def test_whoever_has_left_is_not_waited_for_and_counts_if_it_contributed(self) -> None:
        rounds = Rounds(RoundEnd(quorum=0, deadline=30), LAYOUT)
        for device in (1, 2, 3):
            rounds.add_device(device)
        offer(rounds, 2)
        offer(rounds, 1)
        rounds.remove_device(2)
        assert applied(rounds, 1) is None
        rounds.remove_device(3)
        rounds.remove_device(3)
        assert applied(rounds, 1) == [2, 1]

    def test_at_its_quorum(self) -> None:
        rounds = Rounds(RoundEnd(quorum=2, deadline=30), LAYOUT)
        offer(rounds, 1)
        assert applied(rounds, 29) is None
        offer(rounds, 2)
        assert applied(rounds, 29) == [1, 2]

    def test_at_its_deadline(self) -> None:
        rounds = Rounds(RoundEnd(quorum=3, deadline=30), LAYOUT)
        offer(rounds, 1, now=0.1)
        offer(rounds, 2, now=29)
        assert rounds.due == 30.1
        assert applied(rounds, 30) is None
        assert applied(rounds, rounds.due) == [1, 2]
        assert rounds.due is None

    def test_never_without_a_contribution(self) -> None:
        rounds = Rounds(RoundEnd(quorum=0, deadline=1), LAYOUT)
        assert (rounds.due, applied(rounds, 100)) == (None, None)


def of_a_cohort(*devices: int, size: int = 2, turns: int = 1, quorum: int = 0) -> Rounds:
    rounds = Rounds(RoundEnd(quorum, deadline=30), LAYOUT, cohort=Cohort(size, turns))
    for device in devices:
        rounds.add_device(device)
    return rounds


class TestARoundOfACohort:
    def test_ends_once_those_have_contributed_whose_turn_it_is(self) -> None:
        rounds = of_a_cohort(1, 2, 3)
        assert rounds.turns is not None
        offer(rounds, 1)
        assert applied(rounds, 1) is None
        assert 2 in rounds.turns.members
        offer(rounds, 2)
        assert applied(rounds, 1) == [1, 2]
        assert [device in rounds.turns.members for device in (1, 2, 3)] == [True, False, True]

    def test_at_a_quorum_of_them(self) -> None:
        rounds = of_a_cohort(1, 2, 3, quorum=1)
        offer(rounds, 2)
        assert applied(rounds, 1) == [2]

    def test_takes_what_comes_late_of_others(self) -> None:
        rounds = of_a_cohort(1, 2, 3)
        offer(rounds, 3)
        offer(rounds, 1)
        assert applied(rounds, 1) is None
        offer(rounds, 2)
        assert applied(rounds, 1) == [3, 1, 2]

    def test_takes_nothing_of_who_was_not_called(self) -> None:
        """But of who was, and has gone, and of a server that was restarted nobody knows whom it called."""
        rounds = of_a_cohort(1, 2, 3, 4)
        offer(rounds, 4)
        offer(rounds, 1)
        offer(rounds, 2)
        assert applied(rounds, 1) == [4, 1, 2]
        for device in (1, 2):
            with pytest.raises(BaseExpired, match="other devices take part"):
                offer(rounds, device)
        rounds.remove_device(3)  # its place is 1's
        offer(rounds, 3)
        offer(rounds, 1)
        offer(rounds, 4)
        assert applied(rounds, 2) == [3, 1, 4]

    def test_takes_what_comes_of_who_was_too_slow_for_ten_deadlines(self) -> None:
        rounds = of_a_cohort(1, 2, 3, size=1)
        offer(rounds, 1)
        assert applied(rounds, 0) == [1]
        assert applied(rounds, 300) is None
        assert rounds.turns is not None
        assert set(rounds.turns.members) == {3}
        offer(rounds, 2)
        with pytest.raises(BaseExpired):
            offer(rounds, 1)

    def test_waits_until_its_deadline_once_for_who_gives_nothing(self) -> None:
        rounds = of_a_cohort(1, 2, 3, 4, turns=5)
        turns = rounds.turns
        assert turns is not None
        offer(rounds, 1)
        assert (applied(rounds, 29), applied(rounds, 30)) == (None, [1])
        assert set(turns.members) == {3, 4}
        with pytest.raises(BaseExpired):
            offer(rounds, 2)

    def test_at_a_quorum_keeps_who_has_not_given_yet(self) -> None:
        rounds = of_a_cohort(1, 2, 3, turns=5, quorum=1)
        offer(rounds, 1)
        assert applied(rounds, 1) == [1]
        assert rounds.turns is not None
        assert set(rounds.turns.members) == {2, 3}

    def test_is_not_held_up_by_who_leaves(self) -> None:
        rounds = of_a_cohort(1, 2)
        offer(rounds, 1)
        rounds.remove_device(2)
        assert applied(rounds, 1) == [1]

    def test_is_not_longer_for_who_gives_and_leaves(self) -> None:
        """Its place is empty until the end, and is its own if it comes back before."""
        rounds = of_a_cohort(1, 2, 3, turns=3)
        turns = rounds.turns
        assert turns is not None
        for device in (2, 1):
            offer(rounds, device)
            rounds.remove_device(device)
        rounds.add_device(2)
        assert turns.waiting == 1
        assert applied(rounds, 1) == [2, 1]
        assert set(turns.members) == {2, 3}
        rounds.remove_device(1)
        rounds.add_device(1)
        assert turns.waiting == 1

    def test_that_is_given_up_keeps_no_place_for_who_has_left(self) -> None:
        rounds = of_a_cohort(1, 2, 3)
        offer(rounds, 1)
        rounds.remove_device(1)
        assert [push.device for push in rounds.discard()] == [1]
        assert rounds.turns is not None
        assert set(rounds.turns.members) == {2, 3}

    def test_gives_nothing_for_ten_deadlines_then_others_come(self) -> None:
        rounds = of_a_cohort(1, 2, 3, 4)
        assert rounds.turns is not None
        assert (applied(rounds, 5), rounds.due) == (None, 305)
        assert (applied(rounds, 304), 1 in rounds.turns.members) == (None, True)
        assert (applied(rounds, 305), rounds.due) == (None, 605)
        assert [device in rounds.turns.members for device in (1, 2, 3, 4)] == [False, False, True, True]
        offer(rounds, 3, now=400)
        assert rounds.due == 430
        assert applied(rounds, 430) == [3]
        for device in (1, 2, 3, 4):
            rounds.remove_device(device)
        assert applied(rounds, 500) is None
        assert rounds.due is None

    def test_is_not_waited_for_for_ever_after_another_one(self) -> None:
        """Nobody comes, goes or gives anything any more: it is looked at all the same."""
        rounds = of_a_cohort(1, 2, size=1)
        offer(rounds, 1)
        assert applied(rounds, 7) == [1]
        assert rounds.due == 307
        assert applied(rounds, 307) is None
        assert rounds.turns is not None
        assert set(rounds.turns.members) == {1}


def test_each_mode_has_its_coordinator() -> None:
    assert isinstance(create_coordinator(CoordinationSettings(), LAYOUT), Asynchronous)
    rounds = create_coordinator(CoordinationSettings(mode="rounds", quorum=1, deadline=2), LAYOUT)
    assert isinstance(rounds, Rounds)
    offer(rounds, 1, now=5)
    assert (rounds.due, applied(rounds, 5)) == (7, [1])


def of(samples: int, update: Update) -> Update:
    return Update(**{**{f: getattr(update, f) for f in update.__slots__}, "samples": samples})


def dense(seed: int, size: int = LAYOUT.size) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def ended(engine: Engine) -> list[int]:
    """The versions that the round's updates made."""
    return [receipt.version for _, receipt in end_round(engine)]


@pytest.mark.parametrize("base_batch", [0, 48])
def test_the_papers_equations(tmp_path: Path, base_batch: int) -> None:
    """w <- w - eta gamma sum_i r_i g_i, r_i = S_i / sum S, gamma = sum S / B (4a to 4c)."""
    _, engine = open_engine(tmp_path, Regime("adacomp", 0.1, 6, base_batch=base_batch, rounds=True))
    rates, gradients = [8, 40, 72], [dense(i) for i in range(3)]
    pushes = [
        push(device, of(samples, dense_update(1, 0, gradient)))
        for device, (samples, gradient) in enumerate(zip(rates, gradients, strict=True), 1)
    ]
    assert commit(engine, pushes) == [None, None, None]
    assert engine.published.version == 0
    assert engine.theta()[1].tobytes() == THETA.tobytes(), "nothing moves before the round ends"
    assert ended(engine) == [1, 2, 3]
    shares = np.array(rates) / sum(rates)
    scale = sum(rates) / base_batch if base_batch else 1
    expected = THETA - 0.1 * scale * sum(r * g.astype(float) for r, g in zip(shares, gradients, strict=True))
    np.testing.assert_allclose(engine.theta()[1], expected, rtol=1e-5, atol=1e-6)


def test_equal_batches_are_conventional_synchronous_sgd(tmp_path: Path) -> None:
    """Equation (1): the mean of the devices' gradients. A sparse one counts as zero elsewhere."""
    _, engine = open_engine(tmp_path, ROUNDS)
    commit(engine, [push(1, dense_update(1, 0, dense(0))), push(2, sparse_update(1, 0, {3: 2.0, 24: -4.0}))])
    end_round(engine)
    other = np.zeros(LAYOUT.size)
    other[[3, 24]] = 2, -4
    np.testing.assert_allclose(engine.theta()[1], THETA - 0.1 * (dense(0) + other) / 2, rtol=1e-5, atol=1e-6)


def test_running_statistics_follow_the_weighted_mean(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, ROUNDS, layout=NORMED)
    for device, (samples, statistic) in enumerate([(30, 5.0), (10, 1.0)], 1):
        update = with_statistics(dense_update(1, 0, dense(device)), [statistic] * 6)
        commit(engine, [push(device, of(samples, update))])
    end_round(engine)
    np.testing.assert_allclose(engine.theta()[1][-6:], 1 + (4 - 1) / 10, rtol=1e-6)


def test_whoever_is_late_is_refused_and_may_try_again(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, ROUNDS)
    commit(engine, [push(1, dense_update(1, 0, dense(1)))])
    end_round(engine)
    (late,) = commit(engine, [push(2, dense_update(1, 0, dense(2)))])
    assert isinstance(late, BaseExpired)
    (early,) = commit(engine, [push(2, dense_update(1, 9, dense(2)))])
    assert isinstance(early, BaseInFuture)
    assert commit(engine, [push(2, dense_update(1, 1, dense(2)))]) == [None]
    assert ended(engine) == [2]


def test_what_is_sent_twice_counts_once(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, ROUNDS)
    update = dense_update(1, 0, dense(1))
    assert commit(engine, [push(1, update)]) == [None]
    assert commit(engine, [push(1, update)]) == [None], "the line dropped while it waited"
    (other,) = commit(engine, [push(1, dense_update(2, 0, dense(2)))])
    assert isinstance(other, BadSequence)
    assert ended(engine) == [1]
    assert commit(engine, [push(1, update)]) == [Receipt(1, 1, None)], (
        "the line dropped before the receipt came"
    )
    np.testing.assert_allclose(engine.theta()[1], THETA - np.float32(0.1) * dense(1), rtol=1e-6)


def test_what_was_admitted_counts_whatever_is_sent_again(tmp_path: Path) -> None:
    """A device that started again computes another update under the same number: the first one counts.

    The second never passed admission: it may be anything.
    """
    journal, engine = open_engine(tmp_path, ROUNDS)
    admitted = push(1, dense_update(1, 0, dense(1)))
    broken = push(1, replace(sparse_update(1, 0, {2: float("nan")}, pull=True), loss=9.0, samples=77))
    last = push(1, dense_update(1, 0, dense(2)))
    engine.commit([admitted, push(2, dense_update(1, 0, dense(3)))])
    for earlier, again in ((admitted, broken), (broken, last)):
        ((superseded, why),) = engine.commit([again])
        assert superseded is earlier
        assert isinstance(why, Superseded)
    (first, _), _ = end_round(engine)
    assert first is last, "who waits is answered"
    rows = journal_rows(tmp_path)
    assert [row[4:] for row in rows] == [(0.5, 10, admitted.frame), (0.5, 10, rows[1][-1])]
    engine.close()
    replayed = replay(Journal(tmp_path / "journal.sqlite"), LAYOUT)
    assert replayed.theta.tobytes() == engine.parameters.theta.tobytes()
    assert engine.held_updates == {}
    assert engine._resent == {}


def test_the_next_model_comes_with_the_receipt(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, ROUNDS)
    for device, entries in ((1, {0: 1.0}), (2, {0: 1.0, 7: 3.0})):
        commit(engine, [push(device, sparse_update(1, 0, entries, pull=True))])
    for _, receipt in end_round(engine):
        assert receipt.model is not None
        assert (receipt.model.version, receipt.model.base, receipt.model.count) == (2, 0, 2)


class Random:
    """Rounds of random devices, samples and kinds of updates."""

    def __init__(self, directory: Path, regime: Regime, seed: int = 3) -> None:
        self.journal, self.engine = open_engine(directory, regime, layout=NORMED)
        self._random = np.random.default_rng(seed)
        self._sequence = 0

    def end(self, rounds: int) -> None:
        for _ in range(rounds):
            self.open()
            end_round(self.engine)

    def open(self) -> None:
        random, base = self._random, self.engine.published.version
        for device in range(1, int(random.integers(2, 6))):
            self._sequence += 1
            update = dense_update(self._sequence, base, dense(self._sequence))
            if random.random() < 0.5:
                where = np.flatnonzero(random.random(LAYOUT.size) < 0.3)
                entries = {int(k): float(random.standard_normal()) for k in where}
                update = sparse_update(self._sequence, base, entries)
            update = with_statistics(update, random.standard_normal(6).tolist())
            commit(self.engine, [push(device, of(int(random.integers(1, 100)), update))])


@pytest.mark.parametrize("average", [0.0, 4.0])
def test_a_killed_server_finds_whole_rounds_bit_for_bit(tmp_path: Path, average: float) -> None:
    regime = Regime("adacomp", 0.1, 6, average, 30, rounds=True)
    run = Random(tmp_path, regime)
    run.end(9)
    version, theta = run.engine.theta()
    run.open()  # and dies in the middle of the next one
    run.journal.commit()  # as when an evaluation is journaled meanwhile
    killed = recovered(copy_as_killed(tmp_path, tmp_path / "killed"), regime, NORMED)
    assert killed.version == version
    assert killed.theta.tobytes() == theta.tobytes()
    expected = run.engine.parameters.average
    assert (killed.average is None) == (expected is None)
    if expected is not None:
        assert killed.average is not None
        assert killed.average.tobytes() == expected.tobytes()


def test_a_run_may_change_between_rounds_and_async(tmp_path: Path) -> None:
    """Each start may count by another regime; a replay of all of it gives the same bits."""
    thetas = []
    for seed, rounds in enumerate([True, False, True]):
        run = Random(tmp_path, Regime("adacomp", 0.1, 6, rounds=rounds), seed)
        run._sequence = 100 * seed
        if rounds:
            run.end(3)
        else:
            for _ in range(5):
                run.open()
        thetas.append(run.engine.theta())
        run.engine.close()
    assert len({version for version, _ in thetas}) == 3
    journal = Journal(tmp_path / "journal.sqlite")
    replayed: Parameters = replay(journal, NORMED)
    journal.close()
    assert replayed.version == thetas[-1][0]
    assert replayed.theta.tobytes() == thetas[-1][1].tobytes()


def test_the_average_takes_in_every_stride_of_a_large_round(tmp_path: Path) -> None:
    """100 devices make 6 or 7 strides of 16 versions in a round, which all see the round's theta."""
    _, engine = open_engine(tmp_path, Regime("none", 0.1, 6, average=8.0, rounds=True))
    expected, version = THETA.astype(np.float64), 0
    for _ in range(4):
        for device in range(1, 101):
            commit(engine, [push(device, sparse_update(version + 1, version, {0: 1.0, 7: -2.0}))])
        end_round(engine)
        for count in range(version // 16 + 1, (version + 100) // 16 + 1):
            expected += 9 / (count + 8) * (engine.theta()[1] - expected)
        version += 100
    average = engine.parameters.average
    assert average is not None
    np.testing.assert_allclose(average, expected, rtol=1e-5, atol=1e-6)


def test_a_replay_ends_a_round_where_another_regime_begins(tmp_path: Path) -> None:
    """Asynchronous from then on, a straggler's update may be based on where the last round began."""
    _, engine = open_engine(tmp_path, ROUNDS)
    commit(engine, [push(device, dense_update(1, 0, dense(device))) for device in (1, 2)])
    end_round(engine)
    engine.close()
    journal, engine = open_engine(tmp_path, Regime("none", 0.1, 6))
    assert commit(engine, [push(3, dense_update(1, 2, dense(3)))]) == [Receipt(1, 3, None)]
    replayed = replay(journal, LAYOUT)
    assert replayed.theta.tobytes() == engine.theta()[1].tobytes()


def test_all_of_a_round_get_one_difference(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, ROUNDS)
    commit(engine, [push(device, sparse_update(1, 0, {3: 1.0}, pull=True)) for device in (1, 2)])
    (_, first), (_, second) = end_round(engine)
    assert first.model is second.model
    assert first.model is not None
    commit(engine, [push(1, sparse_update(2, 2, {5: 1.0}, pull=True))])
    ((_, third),) = end_round(engine)
    assert third.model is not None
    assert (third.model.base, third.model.version) == (2, 3)
