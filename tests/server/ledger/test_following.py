"""A run that is replayed while another server leads it, and taken over."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from edgeflock.cli.options import open_register
from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.descent import Part, Place, StepMethod, VectorsLost
from edgeflock.server.descent.regime import Regime
from edgeflock.server.engine.engine import Engine
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.journal.journal import Journal
from edgeflock.server.ledger import claim, claim_run
from edgeflock.server.ledger.claim import Follower, open_journal
from edgeflock.server.ledger.recovery import ReplayedJournal, follow, recover
from edgeflock.server.shards import Sharded
from edgeflock.server.shards.sharded import Order
from edgeflock.shared.errors import ConfigError, JournalDamaged
from edgeflock.shared.settings.config import parse
from tests.postgres import Cluster
from tests.server.pushes import LAYOUT, NORMED, REGIME, THETA, Watched, commit, push, sparse_update
from tests.server.shards.in_process import InProcess

LEASE = 60.0

REGIMES = [
    Regime("adacomp", 0.2, 6),
    Regime("adacomp", 0.05, 6, average=3.0),
    Regime("tau", 0.2, 3),
    Regime("adacomp", 0.2, 6),
]


@pytest.mark.parametrize("every", [1, 3, 1000])
def test_what_is_followed_is_what_a_start_finds(tmp_path: Path, every: int) -> None:
    """After each group, over changes of the settings; the same parameters go on while nothing changes."""
    run, known = Watched(tmp_path, REGIMES[0], EngineLimits(snapshot_every=every)), None
    for regime in REGIMES:
        run.reopen(regime)
        for group, size in zip(range(4), cycle([1, 2, 3]), strict=False):
            run.commit(size)
            before, known = known, follow(run.journal, LAYOUT, known)
            assert (known is before) is (group > 0)
            run.slow.assert_equals(known.parameters)
    assert known is not None
    run.commit(2)
    followed = follow(run.journal, LAYOUT, known)
    assert recover(run.journal, LAYOUT, REGIMES[-1], followed) is followed.parameters
    run.slow.assert_equals(followed.parameters)


def test_what_an_optimizer_remembers_is_followed(tmp_path: Path) -> None:
    regime = Regime("adacomp", 0.01, 6, method=StepMethod("adam"))
    journal = Journal(tmp_path / "journal.sqlite")
    journal.begin_run("run", "package:Model", LAYOUT, THETA, 1.0)
    engine = Engine(journal, LAYOUT, recover(journal, LAYOUT, regime), Asynchronous())
    device, known = engine.device_id("one"), None
    for number in range(1, 9):
        commit(engine, [push(device, sparse_update(number, number - 1, {number % 4: 1.0, 7: -2.0}))])
        known = follow(journal, LAYOUT, known)
        assert known.parameters.packed_memory() == engine.parameters.packed_memory()
        assert known.parameters.theta.tobytes() == engine.theta()[1].tobytes()
    engine.close()


class Breaking(InProcess):
    """Loses its shards when it is told to."""

    def check(self) -> None:
        if not self.shards:
            raise VectorsLost("a shard is lost: on purpose")

    def send(self, orders: Mapping[int, Sequence[Order]]) -> None:
        if self.shards:
            super().ask(orders)

    def ask(self, orders: Mapping[int, Sequence[Order]]) -> dict[int, Any]:
        self.check()
        return super().ask(orders)


@pytest.mark.parametrize("every", [3, 1000])
def test_a_run_is_followed_in_shards_that_get_lost(tmp_path: Path, every: int) -> None:
    run, known, placement = (
        Watched(tmp_path, REGIMES[1], EngineLimits(snapshot_every=every)),
        None,
        Breaking(),
    )
    place = partial(Sharded, placement, 3)
    for group in range(9):
        run.commit(2)
        if group in (3, 6):
            placement.close()
        before, known = known, follow(run.journal, LAYOUT, known, place)
        assert (known is before) is (group not in (0, 3, 6))
        assert known.parameters.version == 2 * (group + 1)
        assert known.parameters.theta.tobytes() == run.engine.parameters.theta.tobytes()
    # And who takes over has lost one meanwhile.
    run.commit(2)
    placement.close()
    taken = recover(run.journal, LAYOUT, REGIMES[1], known, place)
    assert isinstance(taken.store.vectors, Sharded)
    assert taken.theta.tobytes() == run.engine.parameters.theta.tobytes()
    assert taken.average is not None
    assert run.engine.parameters.average is not None
    assert taken.average.tobytes() == run.engine.parameters.average.tobytes()


def test_of_another_run_nothing_is_kept(tmp_path: Path) -> None:
    """A journal may be replaced by another while it is followed."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, second = Watched(tmp_path / "first"), Watched(tmp_path / "second", seed=1)
    first.commit(3)
    known = follow(first.journal, LAYOUT)
    second.commit(5)
    known = follow(second.journal, LAYOUT, ReplayedJournal("of another run", known.regimes, known.parameters))
    second.slow.assert_equals(known.parameters)


def test_a_journal_that_says_not_how_updates_count(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    journal.begin_run("run", "package:Model", LAYOUT, THETA, 1.0)
    with pytest.raises(JournalDamaged, match="has no record of how its updates count"):
        follow(journal, LAYOUT)


def test_who_stands_by_follows_and_takes_over(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "_POLL_SECONDS", 0.0)
    url = postgres.fresh()
    follower, other = Follower(url, LAYOUT), Follower(url, NORMED)
    assert follower.poll() is None  # nobody has begun
    journal = open_journal(url, LEASE)
    journal.begin_run("run", "package:Model", LAYOUT, THETA, 1.0)
    engine = Engine(journal, LAYOUT, recover(journal, LAYOUT, REGIME), Asynchronous())
    device = engine.device_id("one")
    assert follower.poll() == 0
    for number in range(1, 6):
        commit(engine, [push(device, sparse_update(number, number - 1, {number: 1.0}))])
        assert follower.poll() == number
    assert other.poll() is None  # its model is another one
    known, theta = follower.followed, engine.theta()[1]
    assert known is not None
    journal.abandon()  # as if it were killed
    with closing(open_journal(url, LEASE, lambda why: time.sleep(0.1))) as taken:  # until its session is gone
        assert recover(taken, LAYOUT, REGIME, known) is known.parameters
        assert known.parameters.theta.tobytes() == theta.tobytes()


def test_what_is_damaged_is_left_for_whoever_takes_over(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "_POLL_SECONDS", 0.0)
    url = postgres.fresh()
    journal = open_journal(url, LEASE)
    journal.begin_run("run", "package:Model", LAYOUT, THETA, 1.0)
    recover(journal, LAYOUT, REGIME)
    follower = Follower(url, LAYOUT)
    assert follower.poll() == 0
    journal.db.write('UPDATE regimes SET "window" = 9')
    journal.commit()
    assert follower.poll() is None
    journal.abandon()


@pytest.mark.parametrize(
    ("place", "version"),
    [(Part, 0), (partial(Sharded, InProcess(), 2), 0), (None, None)],
    ids=["whole", "sharded", "nowhere"],
)
def test_who_finds_another_leader_waits(
    postgres: Cluster, tmp_path: Path, place: Place | None, version: int | None
) -> None:
    """Where there is no place for what is followed, nothing is."""
    url = postgres.fresh()
    config = parse(overrides=[f"journal.url={url}"])
    reported: list[tuple[str, int | None]] = []

    def wait(why: str, followed: int | None) -> None:
        reported.append((why, followed))
        raise InterruptedError  # an OSError, as of a database that is gone

    with closing(open_journal(url, LEASE, holder="other:8470")) as leader:
        leader.begin_run("run", "package:Model", LAYOUT, THETA, 1.0)
        recover(leader, LAYOUT, REGIME)
        with (
            pytest.raises(ConfigError, match="cannot hold a run"),
            claim_run(tmp_path, "server.directory", LAYOUT, THETA, config, wait=wait, place=place),
        ):
            raise AssertionError("it is the other's")
    assert reported == [("other:8470 hosts the run", version)]
    with open_register(tmp_path) as (register, _):  # as edgeflock token and edgeflock device do
        assert register.tokens == {}
