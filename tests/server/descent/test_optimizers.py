"""Every optimizer against itself, written down one parameter and one rounding at a time; and its journal."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeflock.server.descent import KINDS, Gathered, OptimizerMemory, Parameters, Regime, Step, StepMethod
from edgeflock.server.descent.optimizer import MoveBound, Optimizer
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.errors import ConfigError, StepTooLarge
from edgeflock.shared.model.layout import Layout
from tests.server.pushes import (
    LAYOUT,
    REGIME,
    Watched,
    commit,
    copy_as_killed,
    open_engine,
    push,
    sparse_update,
)

f32 = np.float32
SIZE = 6
numbers = st.floats(-4, 4, width=32)
HOWS = {
    **{kind: StepMethod(kind) for kind in KINDS},
    **{f"{kind}, decay and clip": StepMethod(kind, weight_decay=0.1, clip=1.5, beta1=0.5) for kind in KINDS},
}
every_how = pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)


class Slow:
    """One optimizer over Python lists. Each product, sum, quotient and root is rounded to float32."""

    def __init__(self, theta: NDArray[np.float32], how: StepMethod) -> None:
        self.theta, self.how = list(theta), how
        self.first = [f32(0)] * len(theta)
        self.second = [f32(0)] * len(theta)
        self.times = [0] * len(theta)

    def step(self, gradient: dict[int, Any], rate: np.float32) -> None:
        how, clip = self.how, self.how.clip
        length = math.sqrt(sum(float(g) * float(g) for g in gradient.values()))
        for k, g in gradient.items():
            if clip and length > clip:
                g = f32(g * f32(clip / length))
            if g == 0:
                continue
            theta, decay = self.theta[k], f32(how.weight_decay)
            beside = f32(0)
            if how.kind == "adamw":
                beside = f32(decay * theta)
            else:
                g = f32(g + f32(decay * theta))
            if how.kind == "sgd":
                move = g
            elif how.kind in ("momentum", "nesterov"):
                self.first[k] = f32(f32(f32(how.beta1) * self.first[k]) + g)
                move = self.first[k]
                if how.kind == "nesterov":
                    move = f32(g + f32(f32(how.beta1) * move))
            else:
                self.times[k] += 1
                corrections = [
                    f32((1 - beta) / (1 - math.prod([beta] * self.times[k])))
                    for beta in (how.beta1, how.beta2)
                ]
                self.first[k] = f32(self.first[k] + f32(corrections[0] * f32(g - self.first[k])))
                square = f32(f32(g * g) - self.second[k])
                self.second[k] = f32(self.second[k] + f32(corrections[1] * square))
                move = f32(self.first[k] / f32(np.sqrt(self.second[k]) + f32(how.epsilon)))
                move = f32(beside + move)
            self.theta[k] = f32(theta - f32(rate * move))


class SlowParameters(Slow):
    """The same behind AdaComp's rule: each gradient is divided by how often its parameter was changed."""

    def __init__(self, theta: NDArray[np.float32], how: StepMethod, rate: float) -> None:
        super().__init__(theta, how)
        self.rate = f32(rate)
        self.changed: list[set[int]] = []

    def apply(self, base: int, entries: dict[int, Any]) -> None:
        weighed = {
            k: f32(f32(1) / f32(max(1, sum(k in changed for changed in self.changed[base:])))) * delta
            for k, delta in entries.items()
        }
        self.step(weighed, self.rate)
        self.changed.append({k for k, delta in entries.items() if delta != 0})


@every_how
@given(data=st.data())
def test_each_step_is_as_written_down(how: StepMethod, data: st.DataObject) -> None:
    """Sparse and dense updates, zeros among them, of any staleness: theta is the same, bit for bit."""
    theta = np.array(data.draw(st.lists(numbers, min_size=SIZE, max_size=SIZE)), f32)
    regime = Regime("adacomp", 0.1, 8, method=how)
    # Plain SGD multiplies by the rate before the gradient: test_parameters.py has it.
    if how.is_plain:
        return
    parameters, slow = Parameters(0, theta.copy(), regime=regime, start=0), SlowParameters(theta, how, 0.1)
    for version in range(data.draw(st.integers(1, 12))):
        base = data.draw(st.integers(max(0, version - 7), version))
        chosen = data.draw(st.none() | st.sets(st.integers(0, SIZE - 1)))
        where = np.arange(SIZE) if chosen is None else np.array(sorted(chosen), np.int64)
        delta = np.array(data.draw(st.lists(numbers, min_size=where.size, max_size=where.size)), f32)
        slow.apply(base, dict(zip(where.tolist(), delta, strict=True)))
        parameters.apply(Step(base, slice(None) if chosen is None else where, delta))
        assert parameters.theta.tobytes() == np.array(slow.theta, f32).tobytes()


@every_how
@pytest.mark.parametrize("rule", ["tau", "none", "adacomp"])
def test_a_round_is_one_step_with_its_mean(how: StepMethod, rule: str) -> None:
    if how.is_plain:
        return
    theta = np.linspace(-1, 1, SIZE, dtype=f32)
    layout = Layout.from_shapes([("w", (SIZE,))])
    parameters = Parameters(0, theta.copy(), regime=Regime(rule, 0.1, 8, rounds=True, method=how), start=0)
    slow = Slow(theta, how)
    for number in range(5):
        gathered, total = Gathered(layout), np.zeros(SIZE, f32)
        for samples in (1, 2, 4):
            where = np.array([number % SIZE, SIZE - 1])
            where = np.unique(where)
            delta = np.full(where.size, samples, f32) / f32(8)
            gathered.add(Step(parameters.version, where, delta, samples=samples))
            total[where] += f32(samples) * delta
        slow.step(dict(enumerate(f32(1 / 7) * total)), f32(0.1))
        parameters.apply(gathered)
        assert parameters.theta.tobytes() == np.array(slow.theta, f32).tobytes()


@pytest.mark.parametrize("kind", ["adam", "adamw", "momentum", "nesterov", "sgd"])
def test_all_parameters_every_time_are_as_torch_has_them(kind: str) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(4)
    theta = random.standard_normal(20).astype(f32)
    how = StepMethod(kind, weight_decay=0.01, epsilon=1e-8)
    parameters = Parameters(0, theta.copy(), regime=Regime("none", 0.05, 8, method=how), start=0)
    there = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    terms: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.01}
    makers = {
        "sgd": lambda: torch.optim.SGD([there], **terms),
        "momentum": lambda: torch.optim.SGD([there], momentum=0.9, **terms),
        "nesterov": lambda: torch.optim.SGD([there], momentum=0.9, nesterov=True, **terms),
        "adam": lambda: torch.optim.Adam([there], **terms),
        "adamw": lambda: torch.optim.AdamW([there], **terms),
    }
    optimizer = makers[kind]()
    for version in range(50):
        gradient = random.standard_normal(20).astype(f32)
        there.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        parameters.apply(Step(version, slice(None), gradient))
    np.testing.assert_allclose(parameters.theta, there.detach().numpy(), rtol=2e-4, atol=2e-5)


@every_how
def test_killed_at_any_version_it_goes_on_bit_for_bit(how: StepMethod, tmp_path: Path) -> None:
    """What is remembered is in the snapshot, and what came after it is remembered again."""
    regime = replace(REGIME, learning_rate=0.01, method=how)
    run = Watched(tmp_path, regime, EngineLimits(snapshot_every=5))
    for number in range(13):
        run.commit(1 + number % 3)
        if number % 4 == 3:
            expected = run.engine.parameters
            run.reopen(killed=True)
            assert run.engine.parameters.theta.tobytes() == expected.theta.tobytes()
            assert run.engine.parameters.packed_memory() == expected.packed_memory()
    live = run.engine.parameters
    run.engine.close()
    journal = Journal(run.directory / "journal.sqlite")
    for newest in (False, True):
        again = replay(journal, LAYOUT, newest=newest)
        assert again.theta.tobytes() == live.theta.tobytes()
        assert again.packed_memory() == live.packed_memory()
    journal.close()


def test_another_optimizer_is_another_regime_and_what_it_can_use_it_goes_on_with(tmp_path: Path) -> None:
    run = Watched(tmp_path, replace(REGIME, learning_rate=0.01), EngineLimits(snapshot_every=7))
    kinds = ("momentum", "nesterov", "adam", "sgd", "adamw", "adamw", "momentum")
    for number, kind in enumerate(kinds):
        before = run.engine.parameters.packed_memory()
        run.reopen(replace(REGIME, learning_rate=0.01, method=StepMethod(kind)), killed=number % 2 == 1)
        if kind in ("nesterov",):
            assert run.engine.parameters.packed_memory() == before != None  # noqa: E711
        run.commit(6)
    live = run.engine.parameters
    killed = copy_as_killed(run.directory, tmp_path / "last")
    journal = Journal(killed / "journal.sqlite")
    assert [turn.regime.method.kind for turn in journal.regimes()] == ["sgd", *kinds[:5], *kinds[6:]]
    again = replay(journal, LAYOUT)
    assert again.theta.tobytes() == live.theta.tobytes()
    assert again.packed_memory() == live.packed_memory()
    journal.close()


def test_a_rollback_takes_what_was_remembered_along(tmp_path: Path) -> None:
    from edgeflock.server.ledger.opening import open_engine as opened
    from edgeflock.shared.settings.config import parse

    config = parse(overrides=["optimizer.kind=adam", "coordination.average=0", "journal.snapshot_every=4"])
    journal = Journal(tmp_path / "journal.sqlite")
    journal.begin_run("run", "package:Model", LAYOUT, np.ones(LAYOUT.size, f32), 0.0)
    engine = opened(journal, LAYOUT, config)
    device = engine.device_id("one")
    remembered = {}
    for number in range(1, 11):
        commit(engine, [push(device, sparse_update(number, number - 1, {number % 5: 1.0, 7: -1.0}))])
        remembered[number] = engine.parameters.packed_memory()
    engine.steering.roll_back(6, 0.0)
    assert engine.parameters.packed_memory() == remembered[6]
    commit(engine, [push(device, sparse_update(11, 11, {3: 1.0}))])
    theta, memory = engine.parameters.theta.copy(), engine.parameters.packed_memory()
    again = replay(journal, LAYOUT)
    assert (again.theta.tobytes(), again.packed_memory()) == (theta.tobytes(), memory)
    engine.close()


@pytest.mark.parametrize("kind", KINDS)
@given(
    gradients=st.lists(st.lists(numbers, min_size=SIZE, max_size=SIZE), min_size=1, max_size=15),
    scale=st.floats(1e-3, 1e3),
)
def test_no_step_goes_further_than_was_foretold(
    kind: str, gradients: list[list[float]], scale: float
) -> None:
    how, theta = StepMethod(kind, weight_decay=0.01), np.zeros(SIZE, f32)
    optimizer, bound = Optimizer(how, SIZE), MoveBound(how, OptimizerMemory())
    for drawn in gradients:
        gradient = f32(scale) * np.array(drawn, f32)
        entry = float(np.abs(gradient).max())
        reach = bound.max_move(entry, 0.1, float(np.abs(theta).max()) + 1, 1)
        before = theta.copy()
        optimizer.step(theta, np.arange(SIZE), gradient, f32(0.1))
        bound.record(entry, 1)
        assert np.abs(theta - before).max() <= reach * (1 + 1e-5)


@every_how
def test_what_would_take_a_parameter_too_far_is_refused_and_changes_nothing(
    how: StepMethod, tmp_path: Path
) -> None:
    regime = replace(REGIME, rule="none", learning_rate=100.0, method=how)
    _, engine = open_engine(tmp_path, regime, EngineLimits(parameter=4.0))
    device = engine.device_id("one")
    theta, memory = engine.parameters.theta.copy(), engine.parameters.packed_memory()
    for sequence, far in enumerate((1.0, -1.0, 1e30), 1):
        (answer,) = commit(engine, [push(device, sparse_update(sequence, 0, {3: far}))])
        assert isinstance(answer, StepTooLarge)
        assert engine.parameters.theta.tobytes() == theta.tobytes()
        assert engine.parameters.packed_memory() == memory
    engine.close()


@pytest.mark.parametrize("kind", ["adam", "momentum"])
def test_no_gradient_makes_what_is_remembered_no_number(kind: str, tmp_path: Path) -> None:
    """Its square would be none, and the parameter stand still for ever."""
    regime = replace(REGIME, rule="none", learning_rate=1e-12, method=StepMethod(kind))
    _, engine = open_engine(tmp_path, regime)
    device = engine.device_id("one")
    (answer,) = commit(engine, [push(device, sparse_update(1, 0, {3: 1e30}))])
    assert isinstance(answer, StepTooLarge)
    engine.close()


def test_parameters_that_an_update_leaves_alone_are_left_alone() -> None:
    """Lazy: no momentum, no decay and no fading while updates pass by."""
    for kind in KINDS:
        how = StepMethod(kind, weight_decay=0.1)
        parameters = Parameters(0, np.ones(3, f32), regime=Regime("none", 0.1, 8, method=how), start=0)
        parameters.apply(Step(0, np.array([0, 1]), np.ones(2, f32)))
        first = parameters.theta.copy()
        for version in range(1, 5):
            parameters.apply(Step(version, np.array([1, 2]), np.array([1, 0], f32)))
        assert parameters.theta[[0, 2]].tolist() == [first[0], 1]


def test_what_a_journal_says_of_an_optimizer_is_read_back_or_refused() -> None:
    assert StepMethod().text() == ""
    assert StepMethod.from_text("") == StepMethod()
    how = StepMethod("adamw", 4, 0.5, 0.25, 1e-6, 0.125, 3.0)
    assert StepMethod.from_text(how.text()) == how
    for text in ("{", "[]", '{"kindness": 1}'):
        with pytest.raises(ConfigError, match="is no step method"):
            StepMethod.from_text(text)
