"""What the running statistics of one update may be: as their names say, and near the model's."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.server.descent import Place, Regime, Step, StepMethod, Vectors, VectorState
from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.descent.part import Part
from edgeflock.server.descent.statistics import LIMITED, Running
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import recover, replay
from edgeflock.server.shards import Sharded
from edgeflock.shared.codecs import values
from edgeflock.shared.errors import BadStatistics
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Receipt
from edgeflock.shared.settings import config
from tests.server.pushes import (
    THETA,
    commit,
    copy_as_killed,
    end_round,
    journal_rows,
    kinds,
    open_engine,
    push,
    sparse_update,
    with_statistics,
)
from tests.server.shards.in_process import InProcess

f32 = np.float32
SHAPES: list[tuple[str, tuple[int, ...]]] = [("kernel", (4, 5)), ("bias", (4,)), ("scale", ())]
NORMED = Layout.from_shapes(
    [
        *SHAPES,
        ("one.running_mean", (3,), True),
        ("one.running_var", (3,), True),
        ("two.running_mean", (2,), True),
        ("two.running_var", (2,), True),
    ]
)
"""A model with two layers of BatchNorm, as PyTorch names them."""
REGIME = Regime.from_config(config.parse(), norms=True)
HONEST = [0.5, -1.0, 2.0, 1.0, 0.5, 2.0, 0.0, 0.25, 1.5, 1.0]
"""Means and variances of both layers."""


def hostile(place: int, value: float) -> list[float]:
    return [value if k == place else number for k, number in enumerate(HONEST)]


# What they are


def test_names_tell_what_they_are() -> None:
    assert NORMED.norms == ((slice(0, 3), slice(3, 6)), (slice(6, 8), slice(8, 10)))
    assert np.flatnonzero(NORMED.variances).tolist() == [3, 4, 5, 8, 9]


@pytest.mark.parametrize(
    "buffers",
    [
        [],
        [("running_mean", (2,))],
        [("running_mean", (2,)), ("running_var", (3,))],
        [("a.running_mean", (2,)), ("b.running_var", (2,))],
        [("running_mean", (2,)), ("running_var", (2,)), ("seen", (1,))],
        [("mean", (2,)), ("variance", (2,))],
    ],
)
def test_where_one_is_not_known_none_is_limited(buffers: list[tuple[str, tuple[int, ...]]]) -> None:
    layout = Layout.from_shapes([("w", (3,)), *((name, shape, True) for name, shape in buffers)])
    assert layout.norms == ()


@pytest.mark.parametrize(("mean", "variance"), [("moving_mean", "moving_variance"), ("mean", "var")])
def test_the_names_of_others(mean: str, variance: str) -> None:
    layout = Layout.from_shapes([("w", (3,)), (f"bn/.{mean}", (2,), True), (f"bn/.{variance}", (2,), True)])
    assert layout.norms == ((slice(0, 2), slice(2, 4)),)


# What is refused


@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize(
    ("place", "reported"), [(4, r"one.running_var\[1\] = -0.25 "), (8, r"two.running_var\[0\]")]
)
def test_no_variance_is_below_zero(tmp_path: Path, place: int, reported: str, rounds: bool) -> None:
    """Whoever sends one is told which, and nothing of it is anywhere."""
    journal, run = open_engine(tmp_path, replace(REGIME, rounds=rounds), layout=NORMED)
    device, rows = run.device_id("pi"), journal_rows(tmp_path)
    theta = run.theta()[1].tobytes()
    bad = with_statistics(sparse_update(1, 0, {1: 1.0}), hostile(place, -0.25))
    (answer,) = commit(run, [push(device, bad)])
    assert isinstance(answer, BadStatistics)
    with pytest.raises(BadStatistics, match=reported):
        raise answer
    assert run.theta()[1].tobytes() == theta
    assert journal_rows(tmp_path) == rows
    good = with_statistics(sparse_update(1, 0, {1: 1.0}), hostile(place, -0.0))
    assert commit(run, [push(device, good)]) == [None if rounds else Receipt(1, 1, None)]
    run.close()


def test_a_mean_may_be_below_zero(tmp_path: Path) -> None:
    _, run = open_engine(tmp_path, REGIME, layout=NORMED)
    update = with_statistics(sparse_update(1, 0, {}), hostile(0, -1.5))
    assert kinds(commit(run, [push(run.device_id("pi"), update)])) == [Receipt]
    run.close()


# How far they go


def slow_limit(now: NDArray[np.float32], seen: NDArray[np.float32]) -> NDArray[np.float32]:
    """The formula of docs/protocol.md, number by number."""
    found = seen.copy()
    for means, variances in (((0, 1, 2), (3, 4, 5)), ((6, 7), (8, 9))):
        usual = f32(max(0.0, float(sum(np.float64(now[k]) for k in variances)) / len(variances)))
        for mean, variance in zip(means, variances, strict=True):
            spread = f32(max(now[variance], usual) + f32(1e-5))
            away = f32(2) * np.sqrt(spread)
            found[mean] = max(min(seen[mean], now[mean] + away), now[mean] - away)
            found[variance] = min(seen[variance], f32(2) * spread)
    return found


def test_the_limit_is_the_formula() -> None:
    random = np.random.default_rng(5)
    for number in range(200):
        now = random.standard_normal(10).astype(f32)
        now[NORMED.variances] = random.exponential(10.0 ** (number % 5 - 3), 5)
        seen = (random.standard_normal(10) * 10.0 ** (number % 7 - 3)).astype(f32)
        seen[NORMED.variances] = np.abs(seen[NORMED.variances])
        running = Running(now, NORMED.norms)
        limited, beyond = running.limit(seen)
        assert limited.tobytes() == slow_limit(now, seen).tobytes()
        assert (beyond > 1) == (limited != seen).any()
        assert beyond == 0 or beyond > 1


def test_what_is_usual_counts_as_it_is() -> None:
    limited, beyond = Running(np.array(HONEST, f32), NORMED.norms).limit(np.array(HONEST, f32) * f32(1.5))
    assert limited.tolist() == [1.5 * number for number in HONEST]
    assert beyond == 0


@pytest.mark.parametrize("part", [0.1, 0.4])
@pytest.mark.parametrize("place", [2, 5])
def test_who_is_fewer_than_half_moves_them_little(part: float, place: int) -> None:
    """However often they come. As the rule was without a limit they would be in the tens of thousands."""
    parameters = parameters_at(HONEST)
    hostile_ones = np.random.default_rng(1).random(3000) < part
    worst = 0.0
    for wrong in hostile_ones:
        seen = np.array(hostile(place, values.LARGEST_STATISTIC) if wrong else HONEST, f32)
        nothing = Step(parameters.version, np.zeros(0, np.int64), np.zeros(0, f32), seen)
        parameters.apply(parameters.limit(nothing))
        worst = max(worst, abs(parameters.theta[25 + place] - HONEST[place]))
    assert worst < (3 if part < 0.2 else 100)


def test_what_honest_ones_say_is_reached_from_anywhere() -> None:
    """Inputs that nobody has scaled: means of 100 and variances of 5,000, from 0 and 1."""
    parameters = parameters_at([0, 0, 0, 1, 1, 1, 0, 0, 1, 1])
    seen = np.array([100, -100, 50, 5000, 3000, 4000, 100, 100, 5000, 5000], f32)
    for _ in range(200):
        nothing = Step(parameters.version, np.zeros(0, np.int64), np.zeros(0, f32), seen)
        parameters.apply(parameters.limit(nothing))
    np.testing.assert_allclose(parameters.theta[25:], seen, rtol=1e-3)


def parameters_at(statistics: list[float]) -> Parameters:
    theta = np.concatenate((THETA, np.array(statistics, f32)))
    return Parameters(0, theta, buffers=10, norms=NORMED.norms, regime=REGIME, start=0)


# From the journal


def sharded(state: VectorState, recent: Iterable[Step]) -> Vectors:
    return Sharded(InProcess(), 3, state, recent)


@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("place", [Part, sharded], ids=["here", "shards"])
def test_killed_at_any_moment(tmp_path: Path, rounds: bool, place: Place) -> None:
    """A replay from the newest snapshot, and one from version 0, give the bits that a server had."""
    regime, random = replace(REGIME, rounds=rounds), np.random.default_rng(3)
    journal, run = open_engine(tmp_path, regime, EngineLimits(snapshot_every=7), layout=NORMED)
    devices = [run.device_id(name) for name in ("a", "b", "c")]
    for sequence in range(1, 12):
        base = run.published.version
        for device in devices:
            seen = hostile(int(random.integers(10)), float(random.exponential(10.0 ** random.integers(4))))
            commit(run, [push(device, with_statistics(sparse_update(sequence, base, {sequence: 0.1}), seen))])
        if rounds:
            assert len(end_round(run)) == 3
        killed = Journal(copy_as_killed(tmp_path, tmp_path / str(sequence)) / "journal.sqlite")
        again = recover(killed, NORMED, regime, place=place)
        assert (again.version, again.theta.tobytes()) == (3 * sequence, run.theta()[1].tobytes())
        killed.close()
    assert replay(journal, NORMED).theta.tobytes() == run.theta()[1].tobytes()
    assert run.parameters.regime.method.statistics == LIMITED
    run.close()


def test_a_run_of_before_replays_as_it_was(tmp_path: Path) -> None:
    """Statistics counted as they came; from the next start on they do no longer."""
    before = Regime.from_config(config.parse())
    _, run = open_engine(tmp_path, before, layout=NORMED)
    device = run.device_id("pi")
    for sequence, seen in enumerate([hostile(4, 50.0), hostile(2, 6e4), HONEST], 1):
        update = with_statistics(sparse_update(sequence, sequence - 1, {1: 0.1}), seen)
        assert kinds(commit(run, [push(device, update)])) == [Receipt]
    expected, theta = np.ones(10, f32), run.theta()[1]
    for seen in (hostile(4, 50.0), hostile(2, 6e4), HONEST):
        sent = np.array(seen, np.float16).astype(f32)
        expected += (sent - expected) / f32(10)
    assert theta[25:].tobytes() == expected.tobytes()
    journal, run = open_engine(copied(tmp_path), REGIME, layout=NORMED)
    assert run.theta()[1].tobytes() == theta.tobytes()
    assert [turn.regime.method for turn in journal.regimes()] == [
        StepMethod(),
        StepMethod(statistics=LIMITED),
    ]
    update = with_statistics(sparse_update(4, 3, {}), hostile(2, 6e4))
    assert kinds(commit(run, [push(run.device_id("pi"), update)])) == [Receipt]
    assert abs(run.theta()[1][27] - theta[27]) < 1
    assert replay(journal, NORMED).theta.tobytes() == run.theta()[1].tobytes()
    run.close()


def copied(directory: Path) -> Path:
    to = directory.parent / f"{directory.name}-later"
    copy_as_killed(directory, to)
    return to
