"""Schedules: what they are, that they are the same again, and what they may not be."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.server.coordination import Push
from edgeflock.server.descent import Gathered, Parameters, Regime, Step, StepMethod
from edgeflock.server.descent.rates import SCHEDULES, rate_factor
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.opening import open_engine
from edgeflock.server.ledger.recovery import recover, replay
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.settings.config import parse
from tests.server.pushes import LAYOUT, THETA, commit, sparse_update

COSINE = StepMethod(schedule="cosine", period=100.0, warmup=20.0, least=0.0)


@given(at=st.floats(0, 300))
def test_cosine_after_a_warm_up(at: float) -> None:
    expected = (1 + math.cos(math.pi * min(1.0, max(0.0, at - 20) / 80))) / 2 * min(1.0, (at + 1) / 21)
    assert rate_factor(COSINE, at) == pytest.approx(expected, abs=1e-12)


def test_the_first_update_of_a_warm_up_counts_a_little() -> None:
    assert [rate_factor(StepMethod(warmup=3.0), at) for at in range(5)] == [0.25, 0.5, 0.75, 1, 1]


def test_by_seconds_it_is_the_time_of_the_updates_since_the_first() -> None:
    how = StepMethod(by="seconds", warmup=19.0, least=0.0)
    parameters = Parameters(0, np.zeros(1, np.float32), regime=Regime("none", 1.0, 8, method=how), start=0)
    seen = []
    for version, time in enumerate((1000.0, 1009.0, 1010.0, 1025.0, 990.0)):
        before = parameters.theta[0]
        parameters.apply(Step(version, np.array([0]), np.ones(1, np.float32), time=time))
        seen.append(float(before - parameters.theta[0]))
    assert seen == pytest.approx([0.05, 0.5, 0.55, 1, 0.05])


def test_the_first_round_is_checked_at_the_rate_that_it_will_have() -> None:
    """The rate rises over ten seconds, and so does what the round's last update may take too far."""
    how = StepMethod(by="seconds", warmup=10.0, least=0.0)
    regime = Regime("none", 1.0, 8, rounds=True, method=how)
    layout = Layout.from_shapes([("w", (2,))])
    parameters = Parameters(0, np.zeros(2, np.float32), regime=regime, start=0)
    gathered = Gathered(layout)
    first, last = (
        Step(0, slice(None), np.full(2, 8, np.float32), samples=1, time=time) for time in (100.0, 110.0)
    )
    assert parameters.fits(first, 4.0)
    gathered.add(first)
    assert not parameters.fits(last, 4.0, gathered)
    gathered.add(last)
    assert not parameters.apply(gathered, 4.0)
    parameters.apply(gathered)
    assert parameters.theta.tolist() == [-8, -8]


RATE = "coordination.learning_rate=0.05"

SETTINGS = {
    "by updates": ("optimizer.schedule=cosine", "optimizer.period=30", "optimizer.warmup=4"),
    "by seconds": ("optimizer.schedule=cosine", "optimizer.period=60", "optimizer.schedule_unit=seconds"),
    "rounds": ("coordination.mode=rounds", "coordination.quorum=2", "optimizer.period=60",
               "optimizer.schedule=cosine", "optimizer.schedule_unit=seconds", "optimizer.kind=adam"),
}  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_replay_takes_the_same_rates(settings: tuple[str, ...], tmp_path: Path) -> None:
    config = parse(overrides=["journal.snapshot_every=7", RATE, *settings], tables=CHOICES)
    journal = Journal(tmp_path / "journal.sqlite")
    journal.begin_run("run", "package:Model", LAYOUT, THETA, 0.0)
    engine = open_engine(journal, LAYOUT, config)
    devices, random = [engine.device_id(name) for name in "ab"], np.random.default_rng(0)
    for number in range(1, 26):
        group = []
        for device in devices:
            update = sparse_update(number, engine.published.version, {number % 7: 1.0, 20: random.normal()})
            group.append(Push(device, 1000.0 + 5 * number + device, update, wire.encode(update)))
        commit(engine, group)
    assert engine.published.version == 50
    live = engine.parameters
    assert len({live.learning_rate(1000.0 + 5 * number) for number in range(1, 26)}) > 1 or live.version > 30
    for again in (
        replay(journal, LAYOUT),
        replay(journal, LAYOUT, newest=True),
        recover(journal, LAYOUT, live.regime),
    ):
        assert again.theta.tobytes() == live.theta.tobytes()
        assert again.learning_rate(1100.0) == live.learning_rate(1100.0)
    constant = replace(live.regime, method=replace(live.regime.method, schedule="constant", warmup=0.0))
    assert Parameters(50, live.theta, regime=constant, start=50).learning_rate(1100.0) == 0.05
    engine.close()


def test_a_cosine_ends_with_the_run_unless_a_period_is_set() -> None:
    cosine = ["optimizer.schedule=cosine", "end.updates=80"]
    own = parse(overrides=[*cosine, "optimizer.period=30"], tables=CHOICES)
    assert StepMethod.from_config(parse(overrides=cosine, tables=CHOICES)).period == 80
    assert StepMethod.from_config(own).period == 30


def test_seconds_are_counted_from_the_first_update_of_a_device(tmp_path: Path) -> None:
    """Not from a rollback before it, which is a version as well."""
    config = parse(
        overrides=[
            RATE,
            "optimizer.schedule=cosine",
            "optimizer.schedule_unit=seconds",
            "optimizer.period=20",
        ],
        tables=CHOICES,
    )
    journal = Journal(tmp_path / "journal.sqlite")
    journal.begin_run("run", "package:Model", LAYOUT, THETA, 0.0)
    engine = open_engine(journal, LAYOUT, config)
    device = engine.device_id("a")
    engine.steering.roll_back(0, 1000.0)
    assert recover(journal, LAYOUT, engine.parameters.regime).start_time is None
    for number, at in enumerate((5000.0, 5010.0, 5030.0), 1):
        update = sparse_update(number, number, {number: 1.0})
        commit(engine, [Push(device, at, update, wire.encode(update))])
    live = engine.parameters
    assert live.learning_rate(5010.0) == pytest.approx(0.025)
    for again in (replay(journal, LAYOUT), recover(journal, LAYOUT, live.regime)):
        assert again.start_time == live.start_time == 5000.0
        assert again.theta.tobytes() == live.theta.tobytes()
    engine.close()


def test_a_plateau_of_an_earlier_journal_is_a_constant() -> None:
    assert StepMethod.from_text('{"schedule": "plateau", "kind": "adam"}') == StepMethod("adam")


def test_a_setting_that_is_gone_is_named() -> None:
    with pytest.raises(ConfigError, match="this Edgeflock has no factor; open it with the one that wrote it"):
        StepMethod.from_text('{"schedule": "step", "factor": 0.3}')


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["optimizer.schedule=cosine"], "cannot end with optimizer.period = 0: set"),
        (
            ["optimizer.schedule=cosine", "end.updates=9", "optimizer.schedule_unit=seconds"],
            "its number of seconds",
        ),
        (["optimizer.schedule=cosine", "end.updates=9", "optimizer.warmup=9"], "raise end.updates"),
        (["optimizer.schedule=cosine", "optimizer.period=5", "optimizer.warmup=5"], "no shorter than"),
        (["optimizer.schedule=cosin"], "must be 'constant' or 'cosine'"),
        (["optimizer.kind=adm"], "optimizer.kind = 'adm': must be 'sgd', 'momentum'"),
        (["optimizer.beta1=1"], "optimizer.beta1 = '1': must be less than 1"),
        (["optimizer.beta2=-0.1"], "optimizer.beta2 = '-0.1': must be greater than or equal to 0"),
        (["optimizer.beta2=nan"], "optimizer.beta2 = 'nan'"),
        (["optimizer.clip=-1"], "optimizer.clip = '-1'"),
        (["optimizer.period=9"], "set optimizer.schedule = 'cosine', or leave"),
        (["optimizer.beta1=0.99999999"], "beta1 = 0.99999999 is 1 in float32"),
        (["coordination.quorum=3"], "quorum = '3': it is the number of devices"),
        (["coordination.buffer=5", "coordination.mode=rounds"], "coordination.buffer = '5': it is how many"),
        (["coordination.mode=cohort", "coordination.cohort=65537"], "coordination.cohort = '65537'"),
        ([f"coordination.base_batch={1 << 63}"], "= '9223372036854775808': must be within 64 bits"),
        ([f"end.updates={1 << 80}"], "must be within 64 bits"),
        (["optimizer.kind=adam", "coordination.mode=elastic"], "kind = 'adam': it applies to the server's"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(settings: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(overrides=settings, tables=CHOICES)
    assert complaint in str(caught.value)


def test_every_schedule_can_be_set() -> None:
    for name in SCHEDULES:
        period = ["optimizer.period=9"] if name == "cosine" else []
        config = parse(overrides=[f"optimizer.schedule={name}", RATE, *period], tables=CHOICES)
        assert Regime.from_config(config).method.schedule == name
    assert EngineLimits.from_config(config).learning_rate == 0.05
