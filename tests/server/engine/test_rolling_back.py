"""A model taken back to an earlier version: exactly that, also after a kill, and the run goes on after it."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.coordination.coordinator import Push
from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger import repair, verify
from edgeflock.server.ledger.opening import open_engine
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.ledger.suspects import Suspect, largest_step
from edgeflock.shared.errors import BaseExpired, ConfigError, RunDiverged
from edgeflock.shared.protocol.messages import Receipt
from edgeflock.shared.settings.config import Config, parse
from tests.server.pushes import (
    LAYOUT,
    commit,
    copy_as_killed,
    dense_update,
    initial,
    kinds,
    push,
    recovered,
    sparse_update,
)

NOW = 1_700_000_500.0


def config_of(*settings: str) -> Config:
    terms = "coordination.rule=adacomp", "coordination.learning_rate=0.1", "coordination.window=6"
    return parse("", "test", {}, [*terms, *settings])


WAYS = [
    ("coordination.average=0", "downlink.mode=exact"),
    ("coordination.average=8", "downlink.mode=lossy"),
    ("coordination.average=8", "downlink.mode=lossy", "journal.snapshot_every=3"),
    ("coordination.rule=none", "downlink.mode=lossy"),
    ("coordination.mode=rounds", "coordination.quorum=2", "downlink.mode=lossy"),
    ("coordination.mode=rounds", "coordination.quorum=2", "downlink.mode=exact", "journal.snapshot_every=4"),
]


class Run:
    """A run under random updates of two devices, and what its model was at each version."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        self.config = config_of(*settings)
        self.journal = Journal(directory / "journal.sqlite")
        if self.journal.run() is None:
            self.journal.begin_run("run", "package:Model", LAYOUT, initial(LAYOUT), NOW)
        self.engine = open_engine(self.journal, LAYOUT, self.config)
        self.devices = [self.engine.device_id(name) for name in ("one", "two")]
        self.random = np.random.default_rng(0)
        self.was = {self.engine.parameters.version: bits(self.engine.parameters)}

    def go(self, times: int) -> None:
        """Two updates each time: a round, if there are rounds."""
        for _ in range(times):
            together = self.engine.parameters.regime.rounds
            for devices in [self.devices] if together else [[device] for device in self.devices]:
                answers = commit(self.engine, [self.next(device) for device in devices])
                assert kinds(answers) == [Receipt] * len(devices)
                self.was[self.engine.parameters.version] = bits(self.engine.parameters)

    def next(self, device: int) -> Push:
        base = self.random.integers(self.engine.parameters.oldest, self.engine.parameters.version + 1)
        delta = self.random.standard_normal(LAYOUT.size).astype(np.float32)
        sequence = self.engine.receipts.last_sequence(device) + 1
        if self.random.random() < 0.3:
            return push(device, dense_update(sequence, int(base), delta))
        where = np.flatnonzero(self.random.random(LAYOUT.size) < 0.3).tolist()
        return push(device, sparse_update(sequence, int(base), {k: float(delta[k]) for k in where}))

    def check(self) -> None:
        """A start from what lies on the disk, and a replay of all of it, come to what is in memory."""
        now = self.engine.parameters
        killed = copy_as_killed(self.directory, self.directory / f"killed at {now.version}")
        assert bits(recovered(killed, now.regime)) == bits(now)
        assert bits(replay(self.journal, LAYOUT)) == bits(now)
        assert verify(self.directory / "journal.sqlite").damage == []


def stopped(run: Run) -> str | None:
    return run.engine.published.diverged


def bits(parameters: Parameters) -> tuple[bytes, bytes]:
    average = parameters.average
    return parameters.theta.tobytes(), b"" if average is None else average.tobytes()


@pytest.mark.parametrize("settings", WAYS, ids=" ".join)
def test_bit_for_bit(tmp_path: Path, settings: tuple[str, ...]) -> None:
    """To versions near and far, over earlier rollbacks and other rates, and on from there."""
    run = Run(tmp_path, *settings)
    run.go(10)
    before = run.engine.parameters.version
    for number, to in enumerate((before - 4, before, 2, before + 6, 0, before + 15)):
        assert run.engine.steering.roll_back(to, NOW) == (to, run.engine.published.version)
        version = run.engine.published.version
        assert bits(run.engine.parameters) == run.was[to]
        run.was[version] = run.was[to]
        run.check()
        if number == 2:
            run.engine.steering.adjust(0.05, 0.1)
        run.go(2)
        run.check()
    assert run.engine.receipts.last_sequence(run.devices[0]) == 22


@pytest.mark.parametrize("settings", WAYS, ids=" ".join)
def test_a_run_that_was_rolled_back_goes_on_after_a_kill_as_without(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    (tmp_path / "run").mkdir()
    run = Run(tmp_path / "run", *settings)
    run.go(6)
    run.engine.steering.roll_back(4, NOW)
    run.go(1)
    again = Run(copy_as_killed(run.directory, tmp_path / "again"), *settings)
    assert again.engine.parameters.oldest == run.engine.parameters.oldest
    again.random = np.random.default_rng(5)
    run.random = np.random.default_rng(5)
    run.go(5)
    again.go(5)
    assert bits(again.engine.parameters) == bits(run.engine.parameters)


def test_killed_while_it_is_written(tmp_path: Path) -> None:
    """Before the commit nothing of it is there; so it is all or nothing."""
    run = Run(tmp_path)
    run.go(3)
    seen: list[Path] = []
    whole = run.journal.commit

    def stopped() -> None:
        seen.append(copy_as_killed(tmp_path, tmp_path / "before"))
        whole()
        seen.append(copy_as_killed(tmp_path, tmp_path / "after"))

    run.journal.commit = stopped  # type: ignore[method-assign]
    run.engine.steering.roll_back(2, NOW)
    regime = run.engine.parameters.regime
    before, after = (recovered(directory, regime) for directory in seen)
    assert (before.version, bits(before)) == (6, run.was[6])
    assert (after.version, bits(after)) == (7, run.was[2])


def test_who_holds_what_came_since(tmp_path: Path) -> None:
    """Is sent the model whole; what was computed from it is refused, what was accepted keeps its receipt."""
    for mode in ("exact", "lossy"):
        (tmp_path / mode).mkdir()
        run = Run(tmp_path / mode, f"downlink.mode={mode}", "coordination.average=0")
        one = run.devices[0]
        first = run.engine.outlet.model(None, 0, one)
        run.go(2)
        sent = run.engine.outlet.model(first.version, 0, one)
        run.engine.steering.roll_back(1, NOW)
        again = run.engine.outlet.model(sent.version, 0, one)
        assert (again.version, again.base) == (5, None)
        assert kinds(commit(run.engine, [push(one, sparse_update(9, 4, {1: 1.0}))])) == [BaseExpired]
        assert commit(run.engine, [push(one, sparse_update(2, 0, {1: 1.0}))]) == [Receipt(2, 3, None)]
        assert kinds(commit(run.engine, [push(one, sparse_update(9, 5, {1: 1.0}))])) == [Receipt]


def test_the_middle_of_a_round_is_its_start(tmp_path: Path) -> None:
    run = Run(tmp_path, "coordination.mode=rounds", "coordination.quorum=2")
    run.go(3)
    assert run.engine.steering.roll_back(3, NOW) == (2, 7)
    assert bits(run.engine.parameters) == run.was[2]


def test_a_round_that_is_open(tmp_path: Path) -> None:
    """Its updates start from what does not count any more."""
    run = Run(tmp_path, "coordination.mode=rounds", "coordination.quorum=2")
    run.go(1)
    held = run.next(run.devices[0])
    assert commit(run.engine, [held]) == [None]
    run.engine.steering.roll_back(0, NOW)
    ((refused, why),) = run.engine.commit([], 0.0)
    assert refused is held
    assert isinstance(why, BaseExpired)
    assert not run.engine.held_updates


@pytest.mark.parametrize("version", [-1, 7, 1 << 70])
def test_no_such_version(tmp_path: Path, version: int) -> None:
    run = Run(tmp_path)
    run.go(3)
    with pytest.raises(ConfigError, match="the run has versions 0 to 6"):
        run.engine.steering.roll_back(version, NOW)
    run.go(1)
    run.check()


def test_updates_that_were_not_kept(tmp_path: Path) -> None:
    run = Run(tmp_path, "journal.keep_updates=false", "journal.snapshot_every=4", "coordination.window=2")
    run.go(10)
    with pytest.raises(ConfigError, match="was dropped"):
        run.engine.steering.roll_back(6, NOW)
    run.engine.steering.roll_back(16, NOW)
    assert bits(run.engine.parameters) == run.was[16]
    run.go(1)


def test_a_model_that_has_diverged_takes_nothing_until_then(tmp_path: Path) -> None:
    """But answers: pulls, receipts of before."""
    run = Run(tmp_path, "coordination.mode=rounds", "coordination.quorum=2")
    run.go(1)
    held = run.next(run.devices[0])
    assert commit(run.engine, [held]) == [None]
    run.engine.steering.stop_diverged(2, "go back")
    ((refused, why),) = run.engine.commit([], 0.0)
    assert (refused, str(why), type(why)) == (held, "go back", RunDiverged)
    assert stopped(run) == "go back"
    assert kinds(commit(run.engine, [held])) == [RunDiverged]
    assert run.engine.outlet.model(None).version == 2
    assert isinstance(commit(run.engine, [push(run.devices[0], sparse_update(1, 0, {}))])[0], Receipt)
    run.engine.steering.roll_back(0, NOW)
    assert stopped(run) is None
    run.engine.steering.stop_diverged(2, "what was known of a version before it")
    assert stopped(run) is None
    run.go(1)


def test_a_journal_that_was_rolled_back_is_repaired(tmp_path: Path) -> None:
    """To a version after it, and to one before."""
    for to in (9, 5):
        directory = tmp_path / f"to {to}"
        directory.mkdir()
        run = Run(directory)
        run.go(3)
        run.engine.steering.roll_back(2, NOW)
        run.go(2)
        run.engine.close()
        repair(directory / "journal.sqlite", to, NOW)
        assert bits(recovered(directory, run.engine.parameters.regime)) == run.was[to]


def test_the_largest_step_is_suspected(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.go(3)
    run.engine.commit([push(run.devices[1], sparse_update(50, 6, {4: -30.0, 5: 1.0}))])
    run.go(2)
    assert largest_step(run.journal, LAYOUT, 0, 11) == Suspect(7, "two", 50, is_outlier=False)
    assert largest_step(run.journal, LAYOUT, 7, 7) is None
    suspect = largest_step(run.journal, LAYOUT, 7, 11)
    assert suspect is not None
    assert suspect.version > 7
    run.engine.steering.roll_back(6, NOW)
    run.go(1)
    suspect = largest_step(run.journal, LAYOUT, 0, 14)
    assert suspect is not None
    assert suspect.version > 12, "what was rolled back is not to blame"


def fleet(directory: Path, sizes: dict[str, list[float]]) -> Journal:
    """A run in which devices take steps of these sizes in turn."""
    run = Run(directory)
    for turn, step in enumerate(zip(*sizes.values(), strict=True), 1):
        for name, size in zip(sizes, step, strict=True):
            base = run.engine.published.version
            run.engine.commit([push(run.engine.device_id(name), sparse_update(turn, base, {4: size}))])
    return run.journal


def test_who_broke_a_model_is_suspected_and_not_whom_it_broke(tmp_path: Path) -> None:
    sizes = {name: [1.0, 1.0, 1.0, 900.0] for name in "abcd"} | {"e": [1.0, 1.0, 90.0, 900.0]}
    journal = fleet(tmp_path, sizes)
    suspect = largest_step(journal, LAYOUT, 0, 20)
    assert suspect == Suspect(15, "e", 3)


def test_where_all_steps_grow_nobody_stands_out(tmp_path: Path) -> None:
    growing = {name: [1.1**place * 3.0**turn for turn in range(4)] for place, name in enumerate("abcde")}
    suspect = largest_step(fleet(tmp_path, growing), LAYOUT, 0, 20)
    assert suspect is not None
    assert not suspect.is_large


def test_no_device_of_a_private_run_is_suspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    run.go(3)
    assert largest_step(run.journal, LAYOUT, 0, 6) is not None
    (*others, last) = run.journal.regimes()
    private = replace(last.regime, method=replace(last.regime.method, bound=1.0, noise=1.0))
    monkeypatch.setattr(Journal, "regimes", lambda journal: [*others, replace(last, regime=private)])
    assert largest_step(run.journal, LAYOUT, 0, 6) is None


def test_samples_are_suspected_where_they_count(tmp_path: Path) -> None:
    run = Run(tmp_path, "coordination.base_batch=10")
    one, two = run.devices
    heavy = replace(sparse_update(1, 0, {4: 1.0}), samples=5000)
    run.engine.commit([push(one, heavy), push(two, sparse_update(1, 0, {4: 30.0}))])
    assert largest_step(run.journal, LAYOUT, 0, 2) == Suspect(1, "one", 1, is_outlier=False)


def test_the_journal_says_so(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.go(2)
    run.engine.steering.roll_back(3, NOW)
    run.engine.close()
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db:
        rows = db.execute("SELECT version, kind FROM regimes").fetchall()
        made = db.execute("SELECT device, samples FROM updates WHERE version = 5").fetchall()
    assert rows == [(0, "settings"), (5, "rollback to 3")]
    assert made == [(0, 0)]
