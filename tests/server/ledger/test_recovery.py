"""From the journal back to the parameters: as if nothing had happened, whatever happened."""

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.descent.regime import Regime
from edgeflock.server.descent.weighting import RULES
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.records import JournaledUpdate
from edgeflock.server.ledger.recovery import recover, replay
from edgeflock.shared.errors import BaseExpired, ConfigError, JournalDamaged
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Pull
from tests.server.pushes import (
    LAYOUT,
    REGIME,
    THETA,
    Watched,
    commit,
    copy_as_killed,
    dense_update,
    open_engine,
    push,
    recovered,
    sparse_update,
    tampered,
)

every_rule = pytest.mark.parametrize("rule", RULES)
every_bounds = pytest.mark.parametrize(
    "bounds",
    [
        EngineLimits(snapshot_every=every, keep_updates=keep)
        for every in (1, 3, 1000)
        for keep in (True, False)
    ],
    ids=lambda bounds: f"snapshot {bounds.snapshot_every} keep {bounds.keep_updates}",
)


@every_rule
@every_bounds
def test_killed_after_any_group(tmp_path: Path, rule: str, bounds: EngineLimits) -> None:
    """Every cut between two groups: theta, version and sigma are those of the uninterrupted run."""
    run = Watched(tmp_path, Regime(rule, 0.1, 5), bounds)
    for group, size in zip(range(14), cycle([1, 1, 2, 3]), strict=False):
        run.slow.assert_equals(recovered(copy_as_killed(tmp_path, tmp_path / str(group)), run.slow.regime))
        run.commit(size)
        run.check()
    run.engine.close()
    run.slow.assert_equals(recovered(tmp_path, run.slow.regime))


@every_bounds
def test_killed_within_a_group(tmp_path: Path, bounds: EngineLimits) -> None:
    """Before the disk has a group, the group has not happened: it was not acknowledged either."""
    run = Watched(tmp_path, bounds=bounds)
    run.commit(4)
    killed = tmp_path / "killed"
    group = run.prepare(3)
    staged = run.engine.stage(group)
    copy_as_killed(tmp_path, killed)
    run.engine.publish(staged)
    run.check()

    _, engine = open_engine(killed, REGIME, bounds)
    assert engine.published.version == 4
    # The devices got no receipt and send again; then it is the same run.
    commit(engine, group)
    run.slow.assert_equals(engine.parameters)


@every_rule
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_restarted_run_goes_on_as_the_same_run(tmp_path: Path, rule: str, killed: bool) -> None:
    run = Watched(tmp_path, Regime(rule, 0.1, 9), EngineLimits(snapshot_every=4))
    for _ in range(6):
        run.commit(3)
        run.reopen(killed=killed)
        run.check()


REGIMES = [
    Regime("adacomp", 0.2, 6),
    Regime("adacomp", 0.2, 3),
    Regime("tau", 0.2, 3),
    Regime("adacomp", 0.05, 3),
    Regime("none", 1.5, 2),
    Regime("none", 1.5, 2, average=8.0),
    Regime("adacomp", 0.05, 2, average=3.0),
    Regime("adacomp", 0.05, 2),
]
WIDER_AGAIN = [*REGIMES, Regime("adacomp", 0.05, 300), Regime("adacomp", 0.05, 12), Regime("tau", 0.01, 4096)]


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("every", [1, 3, 1000])
@pytest.mark.parametrize(
    ("keep", "regimes"), [(True, WIDER_AGAIN), (False, REGIMES)], ids=["kept", "dropped"]
)
def test_settings_change_between_restarts(
    tmp_path: Path, keep: bool, regimes: list[Regime], every: int, killed: bool
) -> None:
    """The new rule, learning rate and window hold from the restart on, over the whole remembered past."""
    run = Watched(tmp_path, regimes[0], EngineLimits(snapshot_every=every, keep_updates=keep))
    for number, regime in enumerate([*regimes[1:], regimes[-1]]):
        run.commit(4)
        run.commit()
        run.reopen(regime, killed=killed)
        run.check()
        run.slow.assert_equals(recovered(copy_as_killed(run.directory, tmp_path / str(number)), regime))
    run.commit(5)
    run.check()
    if keep:
        again = replay(run.journal, LAYOUT)
        assert (again.version, again.theta.tobytes()) == (run.slow.version, run.engine.theta()[1].tobytes())


def test_settings_change_twice_at_one_version(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    run.commit(5)
    for regime in (Regime("tau", 0.5, 4), Regime("none", 0.7, 4), REGIME, Regime("tau", 0.5, 4)):
        run.reopen(regime)
        run.check()
    run.commit(5)
    run.reopen(killed=True)
    run.check()


@every_rule
def test_a_wider_window_than_the_journal_kept(tmp_path: Path, rule: str) -> None:
    """Bases from before what was dropped stay refused; the rest counts exactly, and the window fills up."""
    run = Watched(tmp_path, Regime(rule, 0.1, 6), EngineLimits(snapshot_every=2, keep_updates=False))
    for _ in range(20):
        run.commit()
    # Snapshot at 20, window 6: the updates that made 15 to 20 are there, so bases go back to 14.
    run.slow.start = 14
    run.reopen(Regime(rule, 0.1, 12))
    run.check()
    newcomer = run.engine.device_id("newcomer")
    (answer,) = commit(run.engine, [push(newcomer, sparse_update(1, 13, {0: 1.0}))])
    assert type(answer) is BaseExpired
    for _ in range(20):
        run.commit()
        run.check()
    run.reopen(Regime(rule, 0.1, 6), killed=True)
    run.check()


@every_rule
@pytest.mark.parametrize("every", [1, 3, 1000])
def test_replay_from_the_beginning_gives_the_same_bits(tmp_path: Path, rule: str, every: int) -> None:
    run = Watched(tmp_path, Regime(rule, 0.1, 5), EngineLimits(snapshot_every=every))
    for size in (1, 5, 2, 9):
        run.commit(size)
        run.slow.assert_equals(replay(run.journal, LAYOUT))


def test_replay_reads_no_later_snapshot(tmp_path: Path) -> None:
    run = Watched(tmp_path, bounds=EngineLimits(snapshot_every=2))
    run.commit(3)
    run.commit(3)
    run.engine.close()
    tampered(
        tmp_path / "journal.sqlite", "UPDATE snapshots SET theta = zeroblob(length(theta)) WHERE version > 0"
    )
    run.slow.assert_equals(replay(Journal(tmp_path / "journal.sqlite"), LAYOUT))


def test_replay_of_a_run_without_updates(tmp_path: Path) -> None:
    journal, _ = open_engine(tmp_path)
    parameters = replay(journal, LAYOUT)
    assert parameters.version == 0
    assert parameters.theta.tobytes() == THETA.tobytes()


def test_replay_of_dropped_updates_says_so(tmp_path: Path) -> None:
    run = Watched(tmp_path, bounds=EngineLimits(snapshot_every=1, keep_updates=False))
    for _ in range(20):
        run.commit()
    with pytest.raises(ConfigError, match=r"update 1 was dropped \(journal.keep_updates = false\)"):
        replay(run.journal, LAYOUT)


def test_recovery_leaves_the_journal_as_it_is(tmp_path: Path) -> None:
    """Starting twice with the same settings adds nothing."""
    run = Watched(tmp_path)
    run.commit(5)
    run.engine.close()
    first = (tmp_path / "journal.sqlite").read_bytes()
    recovered(tmp_path, REGIME)
    assert (tmp_path / "journal.sqlite").read_bytes() == first


def test_an_entry_that_is_no_update_is_named(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    run.commit(3)
    run.journal.close()
    tampered(
        tmp_path / "journal.sqlite",
        "UPDATE updates SET frame = ? WHERE version = 2",
        wire.encode(Pull(None)),
        sealed=True,
    )
    with pytest.raises(JournalDamaged, match="version 2 is not a valid update of the model: it is a Pull"):
        recover(Journal(tmp_path / "journal.sqlite"), LAYOUT, REGIME)


def damaged(directory: Path, statement: str, *values: object) -> Journal:
    """The journal of six updates and snapshots at 0, 4 and 5, after `statement`."""
    run = Watched(directory, bounds=EngineLimits(snapshot_every=1000))
    run.commit(4)
    run.engine.steering.checkpoint()
    run.commit()
    run.engine.steering.checkpoint()
    run.commit()
    run.journal.close()
    tampered(directory / "journal.sqlite", statement, *values, sealed=True)
    return Journal(directory / "journal.sqlite")


DAMAGE = {
    "hole": ("DELETE FROM updates WHERE version = 3", (), "the update that made version 3 is missing"),
    "no msgpack": ("UPDATE updates SET frame = x'c1' WHERE version = 2", (), "version 2 is .* msgpack"),
    "cut off": (
        "UPDATE updates SET frame = substr(frame, 1, 20) WHERE version = 6",
        (),
        "version 6 is not a valid update",
    ),
    "of another model": (
        "UPDATE updates SET frame = ? WHERE version = 6",
        (wire.encode(dense_update(9, 5, np.ones(24, np.float32))),),
        "version 6 is not a valid update of the model",
    ),
    "ahead of its base": (
        "UPDATE updates SET frame = ? WHERE version = 6",
        (wire.encode(sparse_update(9, 6, {2: 1.0})),),
        "version 6 is not a valid update of the model: base 6 is ahead",
    ),
    "short theta": (
        "UPDATE snapshots SET theta = substr(theta, 1, 20)",
        (),
        "the snapshot of version [05] holds 20 bytes, the model 100",
    ),
    "rule": ("UPDATE regimes SET rule = 'hogwild'", (), "the rule 'hogwild' is unknown"),
}


@pytest.mark.parametrize("read", [recover, replay])
@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_ends_a_recovery_with_its_place(
    tmp_path: Path, kind: str, read: Callable[..., Parameters]
) -> None:
    statement, values, message = DAMAGE[kind]
    arguments = (REGIME,) if read is recover else ()
    with closing(damaged(tmp_path, statement, *values)) as journal:
        with pytest.raises(JournalDamaged, match=f"journal.sqlite: .*{message}"):
            read(journal, LAYOUT, *arguments)


def test_a_base_from_before_the_window_is_damage(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    run.commit(20)
    run.journal.close()
    frame = wire.encode(sparse_update(99, 1, {2: 1.0}))
    path, statement = tmp_path / "journal.sqlite", "UPDATE updates SET frame = ? WHERE version = 20"
    tampered(path, statement, frame, sealed=True)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        with pytest.raises(JournalDamaged, match="version 20 is not a valid update of the model: base 1 is"):
            replay(journal, LAYOUT)


def test_a_restart_replays_at_most_snapshot_every_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Watched(tmp_path, Regime("none", 0.1, 2), EngineLimits(snapshot_every=4))
    asked: list[int] = []
    updates = Journal.updates

    def listening(journal: Journal, after: int, until: int | None = None) -> Iterator[JournaledUpdate]:
        asked.append(after)
        return updates(journal, after, until)

    for number in range(1, 14):
        run.commit()
        asked.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "updates", listening)
            recovered(copy_as_killed(tmp_path, tmp_path / str(number)), run.slow.regime)
        assert asked == [number - number % 4]


def test_a_stopped_run_replays_nothing(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    run.commit(5)
    run.engine.close()
    snapshot = Journal(tmp_path / "journal.sqlite").snapshot()
    assert snapshot.version == 5
    assert snapshot.theta.tobytes() == np.array(run.slow.theta, np.float32).tobytes()


def test_killed_while_the_run_is_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal whose tables are there but whose run is not begins the run again."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for number, method in enumerate(("write", "add_snapshot", "commit")):
        directory = tmp_path / str(number)
        directory.mkdir()
        journal = Journal(directory / "journal.sqlite")
        with monkeypatch.context() as patch:
            patch.setattr(journal.db if method == "write" else journal, method, killed)
            with pytest.raises(KeyboardInterrupt):
                journal.begin_run("run", "package:Model", LAYOUT, THETA, 0.0)
        _, engine = open_engine(copy_as_killed(directory, directory / "killed"))
        assert isinstance(engine, Engine)
        assert engine.theta()[1].tobytes() == THETA.tobytes()
