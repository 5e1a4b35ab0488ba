"""Synchronous rounds: ScaDLES' weighted aggregation, and what a journal makes of it."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.server.coordination import Rounds
from edgeflock.server.engine import Engine
from edgeflock.server.journal import Journal
from edgeflock.server.parameters import Parameters
from edgeflock.server.recovery import replay
from edgeflock.server.regime import Regime
from edgeflock.shared.config import Coordination
from edgeflock.shared.errors import BadSequence, BaseExpired, BaseInFuture
from edgeflock.shared.messages import Receipt, Update
from tests.server.pushes import (
    LAYOUT,
    NORMED,
    THETA,
    copy_as_killed,
    dense_update,
    open_engine,
    push,
    recovered,
    sparse_update,
    with_statistics,
)

ROUNDS = Regime("adacomp", 0.1, 6, rounds=True)


class TestWhenARoundEnds:
    def test_once_everybody_present_has_contributed(self) -> None:
        rounds = Rounds(quorum=0, deadline=30)
        assert not rounds.is_over({1, 2}, {1, 2, 3}, 29)
        assert rounds.is_over({1, 2, 3}, {1, 2, 3}, 0)
        assert rounds.is_over({1, 2}, {2}, 0), "one has left after its contribution, another without one"

    def test_at_its_quorum(self) -> None:
        rounds = Rounds(quorum=2, deadline=30)
        assert not rounds.is_over({1}, {1}, 29)
        assert rounds.is_over({1, 2}, {1, 2, 3}, 0)

    def test_at_its_deadline(self) -> None:
        assert Rounds(quorum=3, deadline=30).is_over({1}, {1, 2, 3}, 30)

    def test_never_without_a_contribution(self) -> None:
        assert not Rounds(quorum=0, deadline=1).is_over(set(), set(), 100)

    def test_only_if_the_run_has_rounds(self) -> None:
        assert Rounds.of(Coordination()) is None
        assert Rounds.of(Coordination(mode="rounds", quorum=3, deadline=2)) == Rounds(3, 2)


def of(samples: int, update: Update) -> Update:
    return Update(**{**{f: getattr(update, f) for f in update.__slots__}, "samples": samples})


def dense(seed: int, size: int = LAYOUT.size) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def ended(engine: Engine) -> list[int]:
    """The versions that the round's updates made."""
    return [receipt.version for _, receipt in engine.end_round()]


@pytest.mark.parametrize("base_batch", [0, 48])
def test_the_papers_equations(tmp_path: Path, base_batch: int) -> None:
    """w <- w - eta gamma sum_i r_i g_i, r_i = S_i / sum S, gamma = sum S / B (4a to 4c)."""
    _, engine = open_engine(tmp_path, Regime("adacomp", 0.1, 6, base_batch=base_batch, rounds=True))
    rates, gradients = [8, 40, 72], [dense(i) for i in range(3)]
    pushes = [
        push(device, of(samples, dense_update(1, 0, gradient)))
        for device, (samples, gradient) in enumerate(zip(rates, gradients, strict=True), 1)
    ]
    assert engine.commit(pushes) == [None, None, None]
    assert engine.version == 0
    assert engine.theta()[1].tobytes() == THETA.tobytes(), "nothing moves before the round ends"
    assert ended(engine) == [1, 2, 3]
    shares = np.array(rates) / sum(rates)
    scale = sum(rates) / base_batch if base_batch else 1
    expected = THETA - 0.1 * scale * sum(r * g.astype(float) for r, g in zip(shares, gradients, strict=True))
    np.testing.assert_allclose(engine.theta()[1], expected, rtol=1e-5, atol=1e-6)


def test_equal_batches_are_conventional_synchronous_sgd(tmp_path: Path) -> None:
    """Equation (1): the mean of the devices' gradients. A sparse one counts as zero elsewhere."""
    _, engine = open_engine(tmp_path, ROUNDS)
    engine.commit([push(1, dense_update(1, 0, dense(0))), push(2, sparse_update(1, 0, {3: 2.0, 24: -4.0}))])
    engine.end_round()
    other = np.zeros(LAYOUT.size)
    other[[3, 24]] = 2, -4
    np.testing.assert_allclose(engine.theta()[1], THETA - 0.1 * (dense(0) + other) / 2, rtol=1e-5, atol=1e-6)


def test_running_statistics_follow_the_weighted_mean(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, ROUNDS, layout=NORMED)
    for device, (samples, statistic) in enumerate([(30, 5.0), (10, 1.0)], 1):
        update = with_statistics(dense_update(1, 0, dense(device)), [statistic] * 6)
        engine.commit([push(device, of(samples, update))])
    engine.end_round()
    np.testing.assert_allclose(engine.theta()[1][-6:], 1 + (4 - 1) / 10, rtol=1e-6)


def test_whoever_is_late_is_refused_and_may_try_again(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, ROUNDS)
    engine.commit([push(1, dense_update(1, 0, dense(1)))])
    engine.end_round()
    (late,) = engine.commit([push(2, dense_update(1, 0, dense(2)))])
    assert isinstance(late, BaseExpired)
    (early,) = engine.commit([push(2, dense_update(1, 9, dense(2)))])
    assert isinstance(early, BaseInFuture)
    assert engine.commit([push(2, dense_update(1, 1, dense(2)))]) == [None]
    assert ended(engine) == [2]


def test_what_is_sent_twice_counts_once(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, ROUNDS)
    update = dense_update(1, 0, dense(1))
    assert engine.commit([push(1, update)]) == [None]
    assert engine.commit([push(1, update)]) == [None], "the line dropped while it waited"
    (other,) = engine.commit([push(1, dense_update(2, 0, dense(2)))])
    assert isinstance(other, BadSequence)
    assert ended(engine) == [1]
    assert engine.commit([push(1, update)]) == [Receipt(1, 1, None)], (
        "the line dropped before the receipt came"
    )
    np.testing.assert_allclose(engine.theta()[1], THETA - np.float32(0.1) * dense(1), rtol=1e-6)


def test_the_next_model_comes_with_the_receipt(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, ROUNDS)
    for device, entries in ((1, {0: 1.0}), (2, {0: 1.0, 7: 3.0})):
        engine.commit([push(device, sparse_update(1, 0, entries, pull=True))])
    for _, receipt in engine.end_round():
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
            self.engine.end_round()

    def open(self) -> None:
        random, base = self._random, self.engine.version
        for device in range(1, int(random.integers(2, 6))):
            self._sequence += 1
            update = dense_update(self._sequence, base, dense(self._sequence))
            if random.random() < 0.5:
                where = np.flatnonzero(random.random(LAYOUT.size) < 0.3)
                entries = {int(k): float(random.standard_normal()) for k in where}
                update = sparse_update(self._sequence, base, entries)
            update = with_statistics(update, random.standard_normal(6).tolist())
            self.engine.commit([push(device, of(int(random.integers(1, 100)), update))])


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
            engine.commit([push(device, sparse_update(version + 1, version, {0: 1.0, 7: -2.0}))])
        engine.end_round()
        for count in range(version // 16 + 1, (version + 100) // 16 + 1):
            expected += 9 / (count + 8) * (engine.theta()[1] - expected)
        version += 100
    average = engine.parameters.average
    assert average is not None
    np.testing.assert_allclose(average, expected, rtol=1e-5, atol=1e-6)


def test_a_replay_ends_a_round_where_another_regime_begins(tmp_path: Path) -> None:
    """Asynchronous from then on, a straggler's update may be based on where the last round began."""
    _, engine = open_engine(tmp_path, ROUNDS)
    engine.commit([push(device, dense_update(1, 0, dense(device))) for device in (1, 2)])
    engine.end_round()
    engine.close()
    journal, engine = open_engine(tmp_path, Regime("none", 0.1, 6))
    assert engine.commit([push(3, dense_update(1, 2, dense(3)))]) == [Receipt(1, 3, None)]
    replayed = replay(journal, LAYOUT)
    assert replayed.theta.tobytes() == engine.theta()[1].tobytes()


def test_all_of_a_round_get_one_difference(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, ROUNDS)
    engine.commit([push(device, sparse_update(1, 0, {3: 1.0}, pull=True)) for device in (1, 2)])
    (_, first), (_, second) = engine.end_round()
    assert first.model is second.model
    assert first.model is not None
    engine.commit([push(1, sparse_update(2, 2, {5: 1.0}, pull=True))])
    ((_, third),) = engine.end_round()
    assert third.model is not None
    assert (third.model.base, third.model.version) == (2, 3)
