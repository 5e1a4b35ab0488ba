"""Updates of which a defence lets a part count: the journal says which, and a replay asks no defence."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.server.coordination import Push
from edgeflock.server.defence import MIN_NORMS, DefenceDecision, Trusted
from edgeflock.server.descent import Step
from edgeflock.server.engine import Accepted, Engine
from edgeflock.server.engine.admission import admit
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.journal import Journal
from edgeflock.server.ledger import open_engine
from edgeflock.server.ledger.recovery import replay
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Update
from edgeflock.shared.settings.config import parse
from tests.server.agreements import acquaint
from tests.server.pushes import LAYOUT, NORMED, dense_update, initial, sparse_update, with_statistics

SETTINGS = {
    "adacomp": [],
    "tau": ["coordination.rule=tau", "coordination.base_batch=16"],
    "adam": ["optimizer.kind=adam"],
    "nesterov": ["optimizer.kind=nesterov", "optimizer.clip=0.5"],
    "buffer": ["coordination.mode=buffer", "coordination.buffer=3"],
    "rounds": ["coordination.mode=rounds", "coordination.quorum=3"],
    "median": ["coordination.mode=rounds", "coordination.quorum=3", "coordination.aggregate=median"],
}


UNIT = np.full((LAYOUT.size, 1), LAYOUT.size**-0.5, np.float32) * np.array([1, 0], np.float32)


@contextmanager
def opened(
    path: Path, mode: str, *overrides: str, layout: Layout = LAYOUT
) -> Iterator[tuple[Journal, Engine]]:
    config = parse(overrides=[f"defence.mode={mode}", *overrides], tables=CHOICES)
    with closing(Journal(path / "journal.sqlite", durable=False)) as journal:
        if journal.run() is None:
            journal.begin_run("run", "package:Model", layout, initial(layout), 0.0)
            for name in ("a", "b", "c"):
                journal.device_id(name)
        yield journal, open_engine(journal, layout, config)


def trust(engine: Engine, trusted: Trusted) -> None:
    assert engine.guard is not None
    engine.guard.set_trusted(trusted)


def took(engine: Engine, device: int, update: Update) -> Accepted:
    push = Push(device, float(update.sequence), update, wire.encode(update))
    ((_, answer),) = engine.commit([push])
    assert isinstance(answer, Accepted), answer
    return answer


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("mode", ["clip", "score"])
def test_a_replay_comes_to_the_same_bits(name: str, mode: str, tmp_path: Path) -> None:
    random, sequences = np.random.default_rng(3), [0, 0, 0, 0]
    shares: list[float] = []

    def push(engine: Engine, device: int) -> None:
        sequences[device] += 1
        sign = -1 if device == 3 else 1
        delta = sign * np.abs(random.standard_normal(LAYOUT.size)) * (100 if device == 2 else 1)
        where = np.flatnonzero(random.random(LAYOUT.size) < 0.4)
        entries = {int(k): float(delta[k]) for k in where}
        update = sparse_update(sequences[device], engine.published.version, entries)
        push = Push(device, float(sequences[device]), update, wire.encode(update))
        shares.extend(one.share for _, one in engine.commit([push]) if isinstance(one, Accepted))

    for _ in range(2):
        with opened(tmp_path, mode, *SETTINGS[name], "journal.snapshot_every=7") as (journal, engine):
            if mode == "score":
                trust(engine, Trusted(0, UNIT))
                acquaint(engine.guard)
            for number in range(33):
                push(engine, 1 + number % 3)
            theta = engine.parameters.theta.tobytes()
            assert replay(journal, LAYOUT).theta.tobytes() == theta
            assert replay(journal, LAYOUT, newest=True).theta.tobytes() == theta
            assert np.isfinite(engine.parameters.theta).all()
    held = 0 if "coordination.mode=rounds" in SETTINGS[name] else MIN_NORMS
    assert shares[:held] == [0.0] * held
    kinds = {"dropped" if not share else "cut" if share < 1 else "whole" for share in shares[held:]}
    assert kinds == ({"cut", "whole"} if mode == "clip" else {"cut", "whole", "dropped"})


class Looking:
    """Stands for server/trusting.py: what takes theta to 1, and how it moved."""

    def __init__(self) -> None:
        self.before = np.zeros(LAYOUT.size, np.float32)

    def __call__(self, version: int, theta: NDArray[np.float32]) -> Trusted:
        both = np.stack([theta - 1, self.before - theta], 1)
        self.before = theta.copy()
        return Trusted(version, (both / np.linalg.norm(both, axis=0).clip(1e-9)).astype(np.float32))


@pytest.mark.parametrize("name", ["adacomp", "adam", "rounds"])
def test_a_restart_in_the_middle_changes_no_decision(name: str, tmp_path: Path) -> None:
    """One of three devices is honest for half of the run, and then sends the opposite, thrice as large."""
    settings = [*SETTINGS[name], "journal.snapshot_every=7", "coordination.learning_rate=0.01"]

    def run(directory: Path, ends: tuple[int, ...]) -> tuple[list[DefenceDecision], bytes]:
        random = np.random.default_rng(3)
        for first, end in pairwise((0, *ends)):
            with opened(directory, "score", *settings) as (journal, engine):
                look = Looking()
                for number in range(first, end):
                    for version, model in engine.screening.models_to_trust():
                        trust(engine, look(version, model))
                    device, turned = 1 + number % 3, number % 3 == 2 and number > 120
                    pull = engine.parameters.theta - 1 + random.standard_normal(LAYOUT.size)
                    where = np.flatnonzero(random.random(LAYOUT.size) < 0.4)
                    entries = {int(k): float(pull[k]) * (-3 if turned else 1) for k in where}
                    update = sparse_update(1 + number // 3, engine.published.version, entries)
                    engine.commit([Push(device, float(number), update, wire.encode(update))])
                    engine.commit([], 1e9)
                decided, theta = list(journal.defence_decisions()), engine.parameters.theta.tobytes()
                assert replay(journal, LAYOUT).theta.tobytes() == theta
        return decided, theta

    (tmp_path / "once").mkdir()
    (tmp_path / "often").mkdir()
    whole = run(tmp_path / "once", (240,))
    assert run(tmp_path / "often", (39, 123, 171, 240)) == whole
    last = [one.share for one in whole[0][210:]]
    assert 0 < last.count(0.0) < len(last), "some are dropped, and not all"


def test_a_restarted_guard_knows_what_is_usual(tmp_path: Path) -> None:
    large = sparse_update(31, 30, {0: 300.0})
    with opened(tmp_path, "clip") as (_, engine):
        for sequence in range(1, 31):
            took(engine, 1, sparse_update(sequence, sequence - 1, {sequence % 25: 0.5}))
        assert engine.guard is not None
        before = engine.guard.decide(30, 1, _step(large), 1.0)
    with opened(tmp_path, "clip") as (_, engine):
        assert engine.guard is not None
        assert engine.guard.decide(30, 1, _step(large), 1.0) == before
        assert took(engine, 1, large).share == pytest.approx(0.5 / 300)


def _step(update: Update) -> Step:
    return admit(update, LAYOUT, oldest=0, version=100, samples=100, expansion_bytes=1 << 20)


def test_what_is_dropped_has_a_receipt_and_changes_nothing(tmp_path: Path) -> None:
    """Not even running statistics; and sent again it gets the same receipt, and is not counted again."""
    with opened(tmp_path, "score", layout=NORMED) as (journal, engine):
        trust(engine, Trusted(0, UNIT))
        acquaint(engine.guard, norm=2.0)
        before = engine.parameters.theta.copy()
        update = with_statistics(sparse_update(1, 0, {3: -1.0, 5: -2.0}), [9.0] * 6)
        answer = took(engine, 1, update)
        assert (answer.receipt.version, answer.share) == (1, 0.0)
        assert engine.parameters.theta.tobytes() == before.tobytes()
        assert took(engine, 1, update).receipt == answer.receipt
        assert engine.guard is not None
        assert engine.guard.counts == {"dropped": 1}
        later = with_statistics(sparse_update(1, 0, {3: 1.0, 5: 2.0}), [9.0] * 6)
        assert took(engine, 2, later).share == 1
        assert (engine.parameters.theta != before).sum() == 2 + 6
        assert replay(journal, NORMED).theta.tobytes() == engine.parameters.theta.tobytes()


def test_what_is_cut_short_does_not_move_statistics(tmp_path: Path) -> None:
    with opened(tmp_path, "clip", layout=NORMED) as (_, engine):
        acquaint(engine.guard, norm=1.0)
        took(engine, 1, with_statistics(sparse_update(1, 0, {3: 1.0}), [1.0] * 6))
        statistics = engine.parameters.theta[-6:].copy()
        answer = took(engine, 1, with_statistics(sparse_update(2, 1, {3: 50.0}), [9.0] * 6))
        assert answer.share == pytest.approx(0.02)
        assert engine.parameters.theta[-6:].tobytes() == statistics.tobytes()


def test_a_round_of_dropped_updates_alone_ends_and_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, "score", *SETTINGS["rounds"], layout=NORMED) as (journal, engine):
        trust(engine, Trusted(0, UNIT))
        acquaint(engine.guard)
        before = engine.parameters.theta.tobytes()
        answers = []
        for device in (1, 2, 3):
            update = with_statistics(sparse_update(1, 0, {3: -1.0}), [9.0] * 6)
            answers += engine.commit([Push(device, 1.0, update, wire.encode(update))])
        assert [answer.share for _, answer in answers if isinstance(answer, Accepted)] == [0.0] * 3
        assert engine.published.version == 3
        assert engine.parameters.theta.tobytes() == before == replay(journal, NORMED).theta.tobytes()


def test_nothing_finite_makes_theta_infinite(tmp_path: Path) -> None:
    """Without the defence it is refused; with it, it counts as much as a usual one."""
    largest = np.full(LAYOUT.size, np.finfo(np.float32).max)
    with opened(tmp_path, "clip", "coordination.rule=none", "coordination.learning_rate=0.05") as (_, engine):
        acquaint(engine.guard, norm=0.1 * np.sqrt(LAYOUT.size))
        took(engine, 1, dense_update(1, 0, np.full(LAYOUT.size, 0.1, np.float32)))
        before = engine.parameters.theta.copy()
        assert took(engine, 2, dense_update(1, 1, largest)).share > 0
        moved = np.linalg.norm(engine.parameters.theta - before)
        assert moved == pytest.approx(0.05 * 0.1 * np.sqrt(LAYOUT.size), rel=1e-4)
