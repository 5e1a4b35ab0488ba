"""No accepted update takes a parameter beyond what one can be; a refused one changes nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeflock.server.descent.regime import Regime
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.errors import Refused, StepTooLarge
from edgeflock.shared.protocol.messages import Receipt, Update
from tests.server.pushes import (
    LAYOUT,
    NORMED,
    REGIME,
    THETA,
    commit,
    dense_update,
    end_round,
    journal_rows,
    kinds,
    open_engine,
    push,
    sparse_update,
    with_statistics,
)

ROUNDS = Regime("adacomp", 0.1, 6, rounds=True)
MOST = 50.0
LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("rule", ["adacomp", "tau", "none"])
def test_the_largest_number_there_is(tmp_path: Path, rule: str) -> None:
    """Three of them, as they come: each is refused by its name, and leaves no trace."""
    _, engine = open_engine(tmp_path, replace(REGIME, rule=rule))
    for sequence in (1, 2, 3):
        (refusal,) = commit(engine, [push(1, sparse_update(sequence, 0, {3: LARGEST}))])
        assert isinstance(refusal, StepTooLarge)
        assert f"update {sequence}, from version 0," in str(refusal)
        assert "limits.parameter" in str(refusal)
    assert engine.theta()[1].tobytes() == THETA.tobytes()
    assert engine.parameters.version == engine.receipts.last_sequence(1) == 0
    assert journal_rows(tmp_path) == []
    assert kinds(commit(engine, [push(1, sparse_update(1, 0, {3: 1.0}))])) == [Receipt]


def test_as_many_samples_as_there_may_be(tmp_path: Path) -> None:
    """In a round, where an update counts by its samples: the others' is not touched."""
    _, engine = open_engine(tmp_path, ROUNDS)
    honest = push(1, sparse_update(1, 0, {3: 1.0}))
    heavy = push(2, replace(sparse_update(1, 0, {3: 1e35}), samples=1 << 16))
    assert kinds(commit(engine, [honest, heavy])) == [type(None), StepTooLarge]
    assert [one for one, _ in end_round(engine)] == [honest]
    assert engine.theta()[1][3] == pytest.approx(THETA[3] - 0.1, abs=1e-6)


def test_samples_count_before_the_round_does(tmp_path: Path) -> None:
    """By base_batch, where many small steps add up: the one that would break the sum is refused."""
    _, engine = open_engine(tmp_path, replace(ROUNDS, base_batch=10), EngineLimits(parameter=MOST))
    pushes = [push(device, sparse_update(1, 0, {3: -200.0})) for device in (1, 2, 3)]
    assert kinds(commit(engine, pushes)) == [type(None), type(None), StepTooLarge]
    assert len(end_round(engine)) == 2
    assert 39 < engine.theta()[1][3] < MOST


def test_a_rate_that_was_raised_within_a_round(tmp_path: Path) -> None:
    _, engine = open_engine(tmp_path, ROUNDS, EngineLimits(parameter=MOST))
    assert commit(engine, [push(1, sparse_update(1, 0, {3: 300.0}))]) == [None]
    engine.steering.adjust(10.0, 0.1)
    ((_, refusal),) = engine.commit([], 30.0)
    assert isinstance(refusal, StepTooLarge)
    assert engine.theta()[1].tobytes() == THETA.tobytes()
    assert journal_rows(tmp_path) == []


def test_staleness_makes_a_step_short_enough(tmp_path: Path) -> None:
    """What counts is what would be added, not what was sent."""
    _, engine = open_engine(tmp_path, REGIME, EngineLimits(parameter=MOST))
    for sequence in (1, 2, 3, 4):
        commit(engine, [push(1, sparse_update(sequence, sequence - 1, {3: 0.001}))])
    steps = [sparse_update(5, base, {3: -1000.0}) for base in (4, 0)]
    assert kinds(commit(engine, [push(1, steps[0])])) == [StepTooLarge]
    assert kinds(commit(engine, [push(1, steps[1])])) == [Receipt]
    assert 24 < engine.theta()[1][3] < 26


def test_what_is_beyond_may_come_back(tmp_path: Path) -> None:
    """The bound may have been lowered since: steps towards it are taken, others not."""
    large = float(np.abs(THETA).max())
    where, sign = int(np.abs(THETA).argmax()), float(np.sign(THETA[np.abs(THETA).argmax()]))
    _, engine = open_engine(tmp_path, REGIME, EngineLimits(parameter=large / 2))
    assert kinds(commit(engine, [push(1, sparse_update(1, 0, {where: -sign}))])) == [StepTooLarge]
    assert kinds(commit(engine, [push(1, sparse_update(1, 0, {where: sign}))])) == [Receipt]


def test_a_first_model_with_large_parameters_has_room() -> None:
    assert EngineLimits(parameter=10.0).with_initial(np.array([-30, 2], np.float32)).parameter == 60
    assert EngineLimits(parameter=10.0).with_initial(np.array([-3, 2], np.float32)).parameter == 10


NUMBERS = st.one_of(
    st.floats(-LARGEST, LARGEST, width=32),
    st.floats(-600, 600, width=32),
    st.sampled_from([LARGEST, -LARGEST, 0.0, 500.0, -500.0]),
)
UPDATES = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.dictionaries(st.integers(0, LAYOUT.size - 1), NUMBERS, min_size=1, max_size=4),
        st.booleans(),
        st.integers(0, 3),
        st.sampled_from([1, 10, 1 << 16]),
        st.sampled_from([0.0, 65504.0, -65504.0]),
    ),
    max_size=25,
)


@given(
    updates=UPDATES,
    rule=st.sampled_from(["adacomp", "tau", "none"]),
    base_batch=st.sampled_from([0, 7]),
    rounds=st.booleans(),
    average=st.sampled_from([0.0, 8.0]),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_whatever_is_accepted(
    tmp_path_factory: pytest.TempPathFactory,
    updates: list[tuple[int, dict[int, float], bool, int, int, float]],
    rule: str,
    base_batch: int,
    rounds: bool,
    average: float,
) -> None:
    regime = Regime(rule, 0.1, 6, average, base_batch, rounds)
    directory = tmp_path_factory.mktemp("run")
    journal, engine = open_engine(directory, regime, EngineLimits(parameter=MOST), layout=NORMED)
    sequences: dict[int, int] = {}
    for device, entries, whole, behind, samples, statistic in updates:
        version = engine.parameters.version
        base = max(engine.parameters.oldest, version - behind)
        update = replace(made(sequences.get(device, 0) + 1, base, entries, whole), samples=samples)
        before = engine.theta()[1].tobytes()
        settled = engine.commit([push(device, with_statistics(update, [statistic] * 6))], 0.0)
        if behind == 0:
            settled += engine.commit([], 30.0)
        accepted = [one for one, answer in settled if not isinstance(answer, Refused)]
        assert accepted or engine.theta()[1].tobytes() == before
        sequences.update({one.device: one.update.sequence for one in accepted})
        assert_possible(engine.theta()[1])
        assert_possible(engine.result()[1])
    engine.commit([], 30.0)
    assert_possible(engine.theta()[1])
    assert replay(journal, NORMED).theta.tobytes() == engine.theta()[1].tobytes()
    engine.close()


def made(sequence: int, base: int, entries: dict[int, float], whole: bool) -> Update:
    if not whole:
        return sparse_update(sequence, base, entries)
    delta = np.zeros(LAYOUT.size, np.float32)
    delta[list(entries)] = list(entries.values())
    return dense_update(sequence, base, delta)


def assert_possible(theta: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    trained, statistics = np.split(theta, [LAYOUT.size])
    assert np.abs(trained).max() <= MOST
    assert np.abs(statistics).max() <= 65504 * (1 + 1e-6)
