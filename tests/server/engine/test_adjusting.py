"""A learning rate that changes while the run goes on: counted exactly, and recovered bit for bit."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.weighting import RULES
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.ledger.recovery import replay
from tests.server.coordination.test_rounds import ROUNDS, dense, ended
from tests.server.pushes import (
    LAYOUT,
    Watched,
    commit,
    copy_as_killed,
    dense_update,
    open_engine,
    push,
    recovered,
)

CONFIGURED = 0.1


def adjust(run: Watched, rate: float) -> None:
    assert run.engine.steering.adjust(rate, CONFIGURED) == run.engine.published.version
    run.slow.regime = replace(run.slow.regime, learning_rate=rate)


@pytest.mark.parametrize("rule", sorted(RULES.keys() - {"elastic"}))
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("every", [1, 3, 1000])
def test_killed_before_and_after_any_change(tmp_path: Path, rule: str, every: int, keep: bool) -> None:
    run = Watched(
        tmp_path, Regime(rule, CONFIGURED, 5), EngineLimits(snapshot_every=every, keep_updates=keep)
    )
    for number, rate in enumerate((0.3, 0.3, 0.02, CONFIGURED, 1.5)):
        run.commit(2)
        run.commit()
        adjust(run, rate)
        run.check()
        at_once = copy_as_killed(tmp_path, tmp_path / f"{number} at once")
        run.slow.assert_equals(recovered(at_once, Regime(rule, CONFIGURED, 5)))
        run.commit(3)
        run.check()
        later = copy_as_killed(tmp_path, tmp_path / f"{number} later")
        parameters = recovered(later, Regime(rule, CONFIGURED, 5))
        run.slow.assert_equals(parameters)
        assert parameters.regime == run.slow.regime
    if keep:
        assert replay(run.journal, LAYOUT).theta.tobytes() == run.engine.theta()[1].tobytes()


def test_in_a_round_that_is_open(tmp_path: Path) -> None:
    """The round descends by the new rate, and so does a replay of it."""
    journal, engine = open_engine(tmp_path, ROUNDS)
    commit(engine, [push(1, dense_update(1, 0, dense(1)))])
    assert ended(engine) == [1]
    commit(engine, [push(1, dense_update(2, 1, dense(2)))])
    engine.steering.adjust(0.7, ROUNDS.learning_rate)
    commit(engine, [push(2, dense_update(1, 1, dense(3)))])
    before = engine.theta()[1]
    in_between = recovered(copy_as_killed(tmp_path, tmp_path / "in between"), ROUNDS)
    assert in_between.theta.tobytes() == before.tobytes()
    assert ended(engine) == [2, 3]
    theta = engine.theta()[1]
    step = (dense(2) + dense(3)) / 2
    assert abs(theta - (before - 0.7 * step)).max() < 1e-5
    assert recovered(copy_as_killed(tmp_path, tmp_path / "after"), ROUNDS).theta.tobytes() == theta.tobytes()
    assert replay(journal, LAYOUT).theta.tobytes() == theta.tobytes()


def test_a_checkpoint_in_a_round_that_is_open_changes_nothing(tmp_path: Path) -> None:
    journal, engine = open_engine(tmp_path, ROUNDS)
    commit(engine, [push(1, dense_update(1, 0, dense(1)))])
    assert engine.steering.checkpoint() == 0
    assert ended(engine) == [1]
    assert replay(journal, LAYOUT).theta.tobytes() == engine.theta()[1].tobytes()
