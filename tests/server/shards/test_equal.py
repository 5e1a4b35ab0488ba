"""A model in shards is the model of one process, bit for bit: over random runs, whatever they are set to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from edgeflock.server.coordination import Push
from edgeflock.server.descent import (
    KINDS,
    RULES,
    Part,
    Place,
    Regime,
    StepMethod,
    Vectors,
    VectorsLost,
    VectorState,
)
from edgeflock.server.descent.memory import OptimizerMemory
from edgeflock.server.engine import Answer, Engine
from edgeflock.server.journal import Journal
from edgeflock.server.ledger import open_engine
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.shards import Sharded
from edgeflock.server.shards.sharded import Order
from edgeflock.shared.errors import ConfigError, Refused
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Update
from edgeflock.shared.settings.config import parse
from tests.server.pushes import LAYOUT, NORMED, dense_update, initial, push, sparse_update, with_statistics
from tests.server.shards.in_process import InProcess


class Fragile(InProcess):
    """Loses a shard now and then: what was sent meanwhile is gone with it."""

    def __init__(self, seed: int, often: float) -> None:
        super().__init__()
        self._random = np.random.default_rng(seed)
        self.often = often
        self.sound = 0
        """Calls before the next may fail."""
        self.again = 100
        """The same after one has: more than it takes to make a version again."""

    def send(self, orders: Mapping[int, Sequence[Order]]) -> None:
        if self.shards:
            super().ask(orders)
        self._break()

    def ask(self, orders: Mapping[int, Sequence[Order]]) -> dict[int, Any]:
        self._break()
        self.check()
        return super().ask(orders)

    def check(self) -> None:
        if not self.shards:
            raise VectorsLost("a shard is lost: on purpose")

    def _break(self) -> None:
        self.sound -= 1
        if self.shards and self.sound < 0 and self._random.random() < self.often:
            self.shards = []
            self.sound = self.again


class Run:
    """An engine over a journal in memory, with the model wherever `place` keeps it."""

    def __init__(self, layout: Layout, overrides: Sequence[str], place: Place) -> None:
        self.layout, self.overrides = layout, overrides
        self.journal = Journal(Path(":memory:"), durable=False)
        self.journal.begin_run("run", "package:Model", layout, initial(layout), 1_700_000_000.0)
        self.engine = self._opened(place)
        self.devices = [self.engine.device_id(f"device {i}") for i in range(3)]

    def _opened(self, place: Place) -> Engine:
        engine = open_engine(self.journal, self.layout, parse(overrides=self.overrides), place=place)
        engine.outlet.record_changes()
        self.followed = engine.parameters.theta.copy()
        """As a gateway keeps it."""
        return engine

    def follow(self) -> None:
        """Take what has changed, as a gateway is told it."""
        reported = self.engine.outlet.changes()
        if reported is not None and reported.counts is None:
            self.followed = reported.values
        elif reported is not None:
            self.followed[reported.indices], statistics = np.split(reported.values, [reported.indices.size])
            self.followed[self.layout.parameters.size :] = statistics
        assert self.followed.tobytes() == self.engine.parameters.theta.tobytes()

    def reopen(self, place: Place) -> None:
        """As after a kill: what was not committed is not there, and nothing is left behind."""
        self.engine = self._opened(place)

    def commit(self, pushes: Sequence[Push], now: float) -> list[object]:
        return [(push.device, reported(answer)) for push, answer in self.engine.commit(pushes, now)]

    @property
    def bits(self) -> tuple[object, ...]:
        parameters = self.engine.parameters
        average = parameters.average
        return (
            parameters.version,
            parameters.theta.tobytes(),
            None if average is None else average.tobytes(),
            parameters.packed_memory(),
            dict(self.journal._heads),
        )


def reported(answer: Answer) -> object:
    return (type(answer), str(answer)) if isinstance(answer, Refused) else answer


class Fleet:
    """Random updates of three devices, for several runs at once."""

    def __init__(self, runs: Sequence[Run], seed: int) -> None:
        self.runs = runs
        self.random = np.random.default_rng(seed)
        self.sequences = dict.fromkeys(runs[0].devices, 0)

    def updates(self, count: int) -> list[Push]:
        """Sparse, dense and empty ones, with zeros, of any staleness; one in twenty is far too large."""
        random, parameters = self.random, self.runs[0].engine.parameters
        made = []
        for _ in range(count):
            device = int(random.choice(list(self.sequences)))
            self.sequences[device] += 1
            base = int(random.integers(parameters.oldest, parameters.version + 1))
            delta = random.integers(-8, 9, LAYOUT.size).astype(np.float32) / np.float32(7)
            if random.random() < 0.05:
                delta *= np.float32(1e6)
            if random.random() < 0.2:
                update = dense_update(self.sequences[device], base, delta)
            else:
                where = np.flatnonzero(random.random(LAYOUT.size) < random.choice([0.0, 0.1, 0.4]))
                entries = {int(k): float(delta[k]) for k in where}
                update = sparse_update(self.sequences[device], base, entries)
            made.append(push(device, self._completed(update)))
        return made

    def _completed(self, update: Update) -> Update:
        seen = self.random.standard_normal(self.runs[0].layout.buffers).tolist()
        samples, pull = int(self.random.integers(1, 20)), self.random.random() < 0.3
        return replace(with_statistics(update, seen), samples=samples, pull=pull)

    def compare(self) -> None:
        first, *others = self.runs
        bits = first.bits
        for other in others:
            assert other.bits == bits

    def go(self, now: float) -> None:
        """One thing more happens, and the same comes of it everywhere, and to whoever follows."""
        self._happen(now)
        for run in self.runs:
            run.follow()

    def _happen(self, now: float) -> None:
        kind, pushes = self.random.random(), self.updates(int(self.random.integers(1, 6)))
        if kind < 0.05:
            to = int(self.random.integers(0, self.runs[0].engine.parameters.version + 1))
            found = [run.engine.steering.roll_back(to, now) for run in self.runs]
        elif kind < 0.1:
            rate = float(self.random.choice([0.01, 0.1, 0.5]))
            found = [(0, run.engine.steering.adjust(rate, 0.1)) for run in self.runs]
        elif kind < 0.13:
            nodes = int(self.random.integers(1, 6))
            for run in self.runs:
                run.engine.steering.set_node_count(nodes)
            return
        elif kind < 0.18:
            base = int(self.random.integers(0, self.runs[0].engine.parameters.version + 1))
            answers = [run.engine.outlet.model(base) for run in self.runs]
            assert all(answer == answers[0] for answer in answers)
            return
        else:
            commits = [run.commit(pushes, now) for run in self.runs]
            assert all(answers == commits[0] for answers in commits)
            return
        assert all(one == found[0] for one in found)


def chosen(rule: str, kind: str, data: st.DataObject) -> list[str]:
    """Settings of a run."""
    if rule == "elastic":
        return ["coordination.mode=elastic", "coordination.window=6", "journal.snapshot_every=7"]
    mode = data.draw(st.sampled_from(["async", "async", "buffer", "rounds", "cohort"]))
    settings: dict[str, object] = {
        "coordination.mode": mode,
        "coordination.rule": rule,
        "coordination.learning_rate": 0.1,
        "coordination.window": data.draw(st.sampled_from([6, 300])),
        "coordination.average": data.draw(st.sampled_from([0, 8])),
        "coordination.base_batch": data.draw(st.sampled_from([0, 10])),
        "optimizer.kind": kind,
        "optimizer.clip": data.draw(st.sampled_from([0, 0, 1.5])),
        "optimizer.weight_decay": data.draw(st.sampled_from([0, 0.1])),
        "optimizer.warmup": 5,
        "limits.parameter": data.draw(st.sampled_from([3.0, 60000.0])),
        "journal.snapshot_every": 7,
        "defence.mode": data.draw(st.sampled_from(["none", "clip"])),
    }
    if data.draw(st.booleans()):
        settings |= {"optimizer.schedule": "cosine", "optimizer.period": 40}
    if mode == "buffer":
        settings["coordination.buffer"] = 3
    if mode in ("rounds", "cohort"):
        settings["coordination.deadline"] = 1.0
        settings["coordination.aggregate"] = data.draw(st.sampled_from(["mean", "median"]))
    return [f"{key}={value}" for key, value in settings.items()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=3, phases=[Phase.generate])
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_every_rule_and_optimizer_gives_the_bits_of_one_process(
    rule: str, kind: str, data: st.DataObject, seed: int
) -> None:
    """Shards in this process, and others that get lost again and again; restarts with other numbers of them,
    or none; rollbacks, other rates, refusals."""
    layout = data.draw(st.sampled_from([LAYOUT, NORMED]))
    overrides = ["downlink.mode=exact", *chosen(rule, kind, data)]
    fragile = Fragile(seed, data.draw(st.sampled_from([0.0, 0.1])))
    count = data.draw(st.integers(1, 5))
    runs = [
        Run(layout, overrides, Part),
        Run(layout, overrides, partial(Sharded, InProcess(), count)),
        Run(layout, overrides, partial(Sharded, fragile, 3)),
    ]
    fleet = Fleet(runs, seed)
    for turn in range(15):
        fleet.go(float(turn))
        if turn == 8:
            fleet.compare()
            places: list[Place] = [partial(Sharded, InProcess(), 2), Part, partial(Sharded, fragile, 4)]
            fragile.often, often = 0.0, fragile.often
            for run, place in zip(runs, places, strict=True):
                run.reopen(place)
            fragile.often = often
    fleet.compare()
    for run in runs:
        again = replay(run.journal, layout)
        assert again.theta.tobytes() == run.engine.parameters.theta.tobytes()


@given(seed=st.integers(0, 1 << 30), count=st.integers(2, 7))
def test_the_sum_of_squares_is_that_of_one_process_to_the_last_bit(seed: int, count: int) -> None:
    """Whose order shows: sums of the slices, added, are others."""
    random = np.random.default_rng(seed)
    delta = np.exp(random.normal(0, 4, 100)).astype(np.float32)
    regime = Regime("adacomp", 0.1, 8, method=StepMethod(clip=1.0))
    state = VectorState(np.zeros(100, np.float32), None, OptimizerMemory(), 0, regime, 0)
    found = []
    for place in (Part, partial(Sharded, InProcess(), count)):
        vectors: Vectors = place(state._replace(theta=state.theta.copy()))
        vectors.weigh(slice(None), delta, 0, np.float32(0.3), 1, 1)
        found.append(vectors.squares(0.0))
    assert found[0] == found[1]


def test_more_shards_than_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match="scale.shards = 26: the model has 25 trained parameters; lower it"):
        Run(NORMED, [], partial(Sharded, InProcess(), 26))


def test_what_is_lost_is_made_again_from_the_journal() -> None:
    """In the middle of a group, too: the updates before it are in the journal then, and none is twice."""
    overrides = ["downlink.mode=exact", "optimizer.kind=momentum", "optimizer.clip=1.5"]
    placement = Fragile(0, 1.0)
    placement.sound = 1 << 30
    runs = [Run(NORMED, overrides, Part), Run(NORMED, overrides, partial(Sharded, placement, 3))]
    fleet = Fleet(runs, 7)
    for turn in range(12):
        placement.sound = turn % 4
        fleet.go(float(turn))
        placement.sound = 1 << 30
        fleet.compare()
    assert runs[1].engine.parameters.store.restorations >= 6


def test_what_is_lost_every_time_is_given_up() -> None:
    placement = Fragile(0, 1.0)
    placement.sound = 1 << 30
    run = Run(LAYOUT, ["downlink.mode=exact", "optimizer.clip=1"], partial(Sharded, placement, 2))
    pushes = Fleet([run], 1).updates(3)
    placement.sound = placement.again = 0
    with pytest.raises(VectorsLost, match="a shard is lost: on purpose"):
        run.commit(pushes, 0.0)
