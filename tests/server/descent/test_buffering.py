"""Several updates make a step (FedBuff): each is durable and answered at once; theta moves with the last."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.client.training.replica import Replica
from edgeflock.server.descent import RULES, Parameters, Part, Place, Regime, Step, StepMethod
from edgeflock.server.descent.memory import OptimizerMemory
from edgeflock.server.engine import Engine
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.opening import open_engine as opened
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.shards import Sharded
from edgeflock.shared.errors import ConfigError, StepTooLarge
from edgeflock.shared.protocol.messages import Receipt
from edgeflock.shared.settings.config import parse
from tests.server.pushes import (
    LAYOUT,
    REGIME,
    THETA,
    Watched,
    commit,
    copy_as_killed,
    open_engine,
    push,
    sparse_update,
)
from tests.server.shards.in_process import InProcess

f32 = np.float32
SIZE = 5
HOWS = {
    "sgd": StepMethod(together=3),
    "adam": StepMethod("adam", 3),
    "decay and clip": StepMethod("momentum", 3, clip=0.5, weight_decay=0.1),
}
numbers = st.floats(-4, 4, width=32)


@pytest.mark.parametrize("rule", ["sqrt", "tau", "none", "adacomp"])
@given(data=st.data())
def test_every_third_update_steps_with_the_mean_of_three(rule: str, data: st.DataObject) -> None:
    """Weighed by the steps since their bases, each, or by each parameter's share of them."""
    regime = Regime(rule, 0.1, 64, method=StepMethod(together=3))
    parameters = Parameters(0, np.ones(SIZE, f32), regime=regime, start=0)
    theta, total = np.ones(SIZE, f32), np.zeros(SIZE, f32)
    changed: list[set[int]] = []
    for version in range(data.draw(st.integers(1, 14))):
        base = data.draw(st.integers(0, version))
        where = np.array(sorted(data.draw(st.sets(st.integers(0, SIZE - 1)))), np.int64)
        delta = np.array(data.draw(st.lists(numbers, min_size=where.size, max_size=where.size)), f32)
        # The steps that theta has taken since: it moved on arriving at 3, 6, 9, ...
        tau = version // 3 - base // 3
        weight = {"sqrt": 1 / math.sqrt(1 + tau), "tau": 1 / max(1, tau)}.get(rule, 1.0)
        for k, change in zip(where.tolist(), delta, strict=True):
            share = f32(sum(k in one for one in changed[base:])) / f32(3)
            own = f32(f32(1) / max(f32(1), share)) if rule == "adacomp" else f32(weight)
            total[k] += f32(own * change)
        changed.append({k for k, change in zip(where.tolist(), delta, strict=True) if change != 0})
        if version % 3 == 2:
            theta -= f32(0.1) * (total / f32(3))
            total[:] = 0
        parameters.apply(Step(base, where, delta))
        assert parameters.version == version + 1
        assert parameters.theta.tobytes() == theta.tobytes()


@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
def test_killed_while_some_wait_it_goes_on_bit_for_bit(how: StepMethod, tmp_path: Path) -> None:
    run = Watched(
        tmp_path, replace(REGIME, rule="sqrt", learning_rate=0.01, method=how), EngineLimits(snapshot_every=4)
    )
    for number in range(11):
        run.commit(1 + number % 2)
        if number % 3 == 2:
            expected = run.engine.parameters
            run.reopen(killed=number % 2 == 0)
            assert run.engine.parameters.theta.tobytes() == expected.theta.tobytes()
            assert run.engine.parameters.packed_memory() == expected.packed_memory()
    live = run.engine.parameters
    journal = Journal(copy_as_killed(run.directory, tmp_path / "last") / "journal.sqlite")
    for newest in (False, True):
        again = replay(journal, LAYOUT, newest=newest)
        assert again.theta.tobytes() == live.theta.tobytes()
        assert again.packed_memory() == live.packed_memory()
    journal.close()


def test_what_waits_is_in_the_next_step_whatever_the_settings_then(tmp_path: Path) -> None:
    """Three of four wait; then each update is a step; the first takes those along. Another start agrees."""
    run = Watched(tmp_path, replace(REGIME, rule="none", method=StepMethod(together=4)))
    run.commit(3)
    assert run.engine.parameters.theta.tobytes() == THETA.tobytes()
    run.reopen(replace(REGIME, rule="none"))
    run.commit(1)
    assert (run.engine.parameters.theta != THETA).any()
    assert run.engine.parameters.packed_memory() is None
    run.commit(3)
    run.reopen(killed=True)
    run.commit(2)
    live = run.engine.parameters
    journal = Journal(copy_as_killed(run.directory, tmp_path / "last") / "journal.sqlite")
    assert replay(journal, LAYOUT).theta.tobytes() == live.theta.tobytes()
    journal.close()


def hosted(journal: Journal, *settings: str) -> Engine:
    overrides = ["downlink.mode=exact", "coordination.average=0", "coordination.rule=none", *settings]
    return opened(journal, LAYOUT, parse(overrides=overrides, tables=CHOICES))


@pytest.mark.parametrize("kind", ["sgd", "momentum"])
def test_what_waits_is_in_the_next_round_if_there_are_rounds_then(kind: str) -> None:
    """A round counts as one update more; of its clip all that it steps with is, and devices are sent it."""
    journal = Journal(Path(":memory:"), durable=False)
    journal.begin_run("run", "package:Model", LAYOUT, THETA, 0.0)
    settings = ("coordination.learning_rate=0.1", f"optimizer.kind={kind}", "optimizer.clip=1")
    engine = hosted(journal, "coordination.mode=buffer", "coordination.buffer=4", *settings)
    device, replica = engine.device_id("one"), Replica(LAYOUT, None)
    for number in range(1, 4):
        commit(engine, [push(device, sparse_update(number, 0, {0: 3.0}))])
    replica.take(engine.outlet.model(None))
    engine = hosted(journal, "coordination.mode=rounds", *settings)
    engine.add_device(device)
    (answer,) = commit(engine, [push(device, sparse_update(4, 3, {1: 12.0}))])
    assert answer == Receipt(4, 4, None)
    mean = np.array([f32(9) / f32(4), f32(12) / f32(4)], f32)
    stepped = THETA.copy()
    stepped[:2] -= f32(0.1) * (mean * f32(1 / math.hypot(*mean.tolist())))
    assert engine.parameters.theta.tobytes() == stepped.tobytes()
    replica.take(engine.outlet.model(3))
    assert replica.theta.tobytes() == stepped.tobytes()
    commit(engine, [push(device, sparse_update(5, 4, {2: 1.0}))])
    again = replay(journal, LAYOUT)
    assert again.theta.tobytes() == engine.parameters.theta.tobytes()
    assert again.packed_memory() == engine.parameters.packed_memory()


@pytest.mark.parametrize("place", [Part, partial(Sharded, InProcess(), 3)], ids=["one process", "shards"])
def test_once_what_waited_has_made_its_step_a_step_costs_its_entries_again(place: Place) -> None:
    """And nothing is kept for updates to come that make a step each."""
    regime = Regime("none", 0.1, 8, method=StepMethod("adam", 1))
    memory = OptimizerMemory("", None, np.ones(LAYOUT.size, f32), 2).pack()
    parameters = Parameters(2, THETA.copy(), None, memory, regime=regime, start=2, place=place)
    parameters.apply(Step(2, np.array([3]), np.ones(1, f32)))
    kept = OptimizerMemory.unpack(parameters.packed_memory(), LAYOUT.size)
    assert kept.gathered is None
    assert kept.numbers is not None
    assert (kept.numbers[:, 2] == 1).all()
    parameters.apply(Step(3, np.array([3]), np.ones(1, f32)))
    assert parameters.changed_indices(np.array([3])).tolist() == [3]  # type: ignore[union-attr]


def test_a_device_that_pulls_while_some_wait_gets_all_of_the_step_later(tmp_path: Path) -> None:
    """Also what updates brought that came before it pulled, and moved nothing then."""
    settings = ("mode=buffer", "buffer=4", "average=0")
    config = parse(
        overrides=["downlink.mode=exact", *(f"coordination.{one}" for one in settings)], tables=CHOICES
    )
    journal = Journal(tmp_path / "journal.sqlite")
    journal.begin_run("run", "package:Model", LAYOUT, THETA, 0.0)
    engine = opened(journal, LAYOUT, config)
    device, replica = engine.device_id("one"), Replica(LAYOUT, None)
    for number in range(1, 3):
        (answer,) = commit(engine, [push(device, sparse_update(number, 0, {number: 8.0}))])
        assert answer == Receipt(number, number, None)
    replica.take(engine.outlet.model(None))
    assert (replica.version, replica.theta.tobytes()) == (2, THETA.tobytes())
    for number in range(3, 5):
        commit(engine, [push(device, sparse_update(number, 0, {number: 8.0}))])
    difference = engine.outlet.model(2)
    assert difference.base == 2
    replica.take(difference)
    assert replica.theta.tobytes() == engine.parameters.theta.tobytes()
    assert np.flatnonzero(replica.theta != THETA).tolist() == [1, 2, 3, 4]
    engine.close()


def test_what_adds_up_to_too_much_is_refused(tmp_path: Path) -> None:
    """Alone neither would take it beyond; the second is refused, and the step is without it."""
    regime = Regime("none", 1.0, 8, method=StepMethod(together=2))
    _, engine = open_engine(tmp_path, regime, EngineLimits(parameter=10.0))
    device = engine.device_id("one")
    first, second = (push(device, sparse_update(number, 0, {3: 12.0})) for number in (1, 2))
    assert type(commit(engine, [first])[0]) is Receipt
    assert type(commit(engine, [second])[0]) is StepTooLarge
    assert type(commit(engine, [push(device, sparse_update(3, 0, {4: 1.0}))])[0]) is Receipt
    assert engine.parameters.theta[3] == f32(THETA[3] - f32(6))
    engine.close()


@pytest.mark.parametrize("place", [Part, partial(Sharded, InProcess(), 3)], ids=["one process", "shards"])
@pytest.mark.parametrize(
    "how", [StepMethod(together=2), StepMethod("momentum", 2, clip=1e6)], ids=["sgd", "momentum"]
)
def test_a_rate_that_was_raised_takes_nothing_that_waits_too_far(how: StepMethod, place: Place) -> None:
    """What it would take beyond need not be of the update that makes the step."""
    parameters = Parameters(
        0, np.zeros(SIZE, f32), regime=Regime("none", 1.0, 8, method=how), start=0, place=place
    )
    first, second = (Step(0, np.array([k]), np.full(1, 12, f32)) for k in (0, SIZE - 1))
    assert parameters.fits(first, 10.0)
    parameters.apply(first)
    assert parameters.fits(replace(second, delta=second.delta / f32(100)), 10.0)
    parameters.regime = replace(parameters.regime, learning_rate=2.0)
    assert not parameters.fits(replace(second, delta=second.delta / f32(100)), 10.0)
    parameters.regime = replace(parameters.regime, learning_rate=0.5)
    assert parameters.fits(second, 10.0)


def test_a_buffer_of_none_is_refused_and_its_rule_is_fedbuff_s() -> None:
    with pytest.raises(ConfigError, match="coordination.buffer = '0': must be greater than or equal to 1"):
        parse(overrides=["coordination.mode=buffer", "coordination.buffer=0"], tables=CHOICES)
    config = parse(overrides=["coordination.mode=buffer"], tables=CHOICES)
    assert (Regime.from_config(config).rule, Regime.from_config(config).method) == (
        "sqrt",
        StepMethod(together=10),
    )
    other = parse(overrides=["coordination.mode=buffer", "coordination.rule=adacomp"], tables=CHOICES)
    assert Regime.from_config(other).rule == "adacomp"
    assert "sqrt" in RULES
