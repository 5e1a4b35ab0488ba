"""The journal by itself: what it keeps, what it refuses, and two of them on one file."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.journal import Account, Journal
from edgeflock.server.log import Evaluation
from edgeflock.server.regime import Regime
from edgeflock.shared.errors import ConfigError
from tests.server.pushes import LAYOUT, REGIME, THETA, commit, open_engine, push, recovered, sparse_update


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal(path)
    opened.begin_run("run 1", "package:Model", LAYOUT, THETA, 1.0)
    yield opened
    opened.close()


def test_a_new_journal_has_no_run(path: Path) -> None:
    with closing(Journal(path)) as journal:
        assert journal.run() is None


def test_what_is_written_is_there_when_opened_again(path: Path, journal: Journal) -> None:
    one, two = journal.device_id("one"), journal.device_id("two")
    journal.add_update(1, two, 9, 1.5, 0.25, 10, b"first")
    journal.add_update(2, one, 1, 2.5, 0.125, 20, b"second")
    journal.add_update(3, two, 12, 3.5, 0.5, 30, b"third")
    journal.add_regime(0, REGIME)
    journal.add_regime(2, Regime("tau", 1 / 3, 9))
    journal.add_evaluation(Evaluation(3, 4.0, 0.75, None, 1 << 40, 2))
    journal.add_account(two, 1 << 41, 5)
    journal.commit()
    with closing(Journal(path)) as again:
        run = again.run()
        assert run is not None
        assert run[:2] == ("run 1", "package:Model")
        assert run[2] == LAYOUT
        assert list(again.updates(0)) == [(1, b"first"), (2, b"second"), (3, b"third")]
        assert list(again.updates(1, 2)) == [(2, b"second")]
        assert again.receipt(two, 9) == 1
        assert again.receipt(two, 12) == 3
        assert again.receipt(one, 9) is None
        assert again.last_receipts() == {one: (1, 2), two: (12, 3)}
        assert again.regimes() == [(0, REGIME), (2, Regime("tau", 1 / 3, 9))]
        assert again.evaluations() == [Evaluation(3, 4.0, 0.75, None, 1 << 40, 2)]
        assert again.accounts() == [Account(one, "one", 1, 0, 0), Account(two, "two", 2, 1 << 41, 5)]
        version, theta, average = again.snapshot()
        assert (version, average) == (0, None)
        assert theta.tobytes() == THETA.tobytes()
        theta[0] = 1  # not a view of the file's bytes


def test_snapshots_first_and_newest(journal: Journal) -> None:
    for version in (3, 7, 11):
        journal.add_snapshot(version, THETA + np.float32(version))
    assert journal.snapshot()[0] == 11
    assert journal.snapshot(first=True)[0] == 0
    assert journal.snapshot()[1].tobytes() == (THETA + np.float32(11)).tobytes()


def test_a_snapshot_keeps_the_average_beside_theta(path: Path, journal: Journal) -> None:
    average = THETA * np.float32(1 / 3)
    journal.add_snapshot(4, THETA, average)
    journal.commit()
    with closing(Journal(path)) as again:
        version, theta, kept = again.snapshot()
        assert kept is not None
        assert (version, theta.tobytes(), kept.tobytes()) == (4, THETA.tobytes(), average.tobytes())
        assert kept.dtype == np.float32
        kept[0] = 1  # not a view of the file's bytes
        assert again.snapshot(first=True)[2] is None
    journal.add_snapshot(4, THETA)
    assert journal.snapshot()[2] is None


def test_a_regime_keeps_its_average(journal: Journal) -> None:
    regimes = [(0, REGIME), (5, Regime("adacomp", 0.1, 6, 1 / 3)), (9, Regime("tau", 0.1, 6, 8.0))]
    for version, regime in regimes:
        journal.add_regime(version, regime)
    assert journal.regimes() == regimes
    assert [regime.average for _, regime in regimes] == [0.0, 1 / 3, 8.0]


def test_nothing_is_there_before_the_commit(path: Path, journal: Journal) -> None:
    device = journal.device_id("one")
    journal.add_update(1, device, 1, 0.0, 0.0, 1, b"frame")
    journal.add_snapshot(1, THETA)
    with closing(Journal(path)) as other:
        assert list(other.updates(0)) == []
        assert other.snapshot()[0] == 0
        journal.commit()
        assert list(other.updates(0)) == [(1, b"frame")]
        assert other.snapshot()[0] == 1


def test_the_largest_numbers_of_the_wire_fit(journal: Journal) -> None:
    largest = (1 << 63) - 1
    device = journal.device_id("one")
    journal.add_update(1, device, largest, 0.0, 3e38, largest, b"")
    journal.commit()
    assert journal.receipt(device, largest) == 1


@pytest.mark.parametrize("schema", [1, 99])
def test_another_schema_is_refused(path: Path, schema: int) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {schema}")
    with pytest.raises(ConfigError, match=f"has journal schema {schema}; this version reads 4"):
        Journal(path)


def test_a_commit_is_on_the_disk_when_it_returns(path: Path) -> None:
    """WAL with synchronous = FULL (2): SQLite flushes the log at every commit."""
    journal = Journal(path)
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_opened_one_after_the_other(tmp_path: Path) -> None:
    for opening in range(4):
        _, engine = open_engine(tmp_path)
        assert engine.published.version == opening
        device = engine.device_id("one")
        commit(engine, [push(device, sparse_update(opening + 1, opening, {2: 1.0}))])
        engine.close()
    expected = THETA.copy()
    for _ in range(4):
        expected[2] -= np.float32(0.1)
    assert recovered(tmp_path, REGIME).theta.tobytes() == expected.tobytes()


def test_opened_twice_at_once_only_one_can_write(tmp_path: Path) -> None:
    """A second server on the same directory acknowledges nothing that the first one has not seen."""
    _, first = open_engine(tmp_path)
    _, second = open_engine(tmp_path)
    device = first.device_id("one")
    first.commit([push(device, sparse_update(1, 0, {2: 1.0}))])
    with pytest.raises(sqlite3.IntegrityError):
        second.commit([push(device, sparse_update(2, 0, {5: 1.0}))])
    first_theta = first.theta()[1]
    assert recovered(tmp_path, REGIME).theta.tobytes() == first_theta.tobytes()


def test_a_full_disk_leaves_no_part_of_a_commit(path: Path, journal: Journal) -> None:
    """SQLite rolls back by itself when it is full: what comes next must not go in row by row."""
    journal.device_id("one")
    (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
    journal._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        journal.add_snapshot(1, np.zeros(100_000, np.float32))
    for version, frame in enumerate((b"small", b"small", bytes(1 << 20)), 1):
        journal.add_update(version, 1, version, 0.0, 0.5, 10, frame)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        journal.commit()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM updates").fetchone() == (0,)
    journal._updates.clear()
