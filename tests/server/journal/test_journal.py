"""The journal by itself: what it keeps, what it refuses, and two of them on one file."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.database import SqliteDatabase
from edgeflock.server.descent.regime import Regime
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.records import (
    Adjustment,
    DeviceTotals,
    JournaledUpdate,
    LastReceipt,
    RegimeStart,
    RunRecord,
)
from edgeflock.shared.errors import JournalDamaged
from edgeflock.shared.model.start import NORMAL, Filling, Start
from edgeflock.shared.protocol.frames import Evaluation
from tests.server.pushes import (
    LAYOUT,
    REGIME,
    THETA,
    commit,
    open_engine,
    push,
    recovered,
    sparse_update,
    tampered,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal(path)
    opened.begin_run("run 1", "package:Model", LAYOUT, THETA, 1.0)
    yield opened
    opened.close()


def database(journal: Journal) -> sqlite3.Connection:
    assert isinstance(journal.db, SqliteDatabase)
    return journal.db.connection


def test_a_new_journal_has_no_run(path: Path) -> None:
    with closing(Journal(path)) as journal:
        assert journal.run() is None


def test_what_is_written_is_there_when_opened_again(path: Path, journal: Journal) -> None:
    one, two = journal.device_id("one"), journal.device_id("two")
    journal.add_regime(0, REGIME)
    journal.add_update(1, two, 9, 1.5, 0.25, 10, b"first")
    journal.add_update(2, one, 1, 2.5, 0.125, 20, b"second")
    journal.add_regime(2, Regime("tau", 1 / 3, 9), "operator")
    journal.add_update(3, two, 12, 3.5, 0.5, 30, b"third")
    journal.add_evaluation(Evaluation(3, 4.0, 0.75, None, 1 << 40, 2))
    journal.add_evaluation(Evaluation(3, 5.0, 0.75, 0.5, 3, 2, {"f1": 1 / 3, "own \u00fc": None}))
    journal.add_account(two, 1 << 41, 5)
    journal.commit()
    with closing(Journal(path)) as again:
        assert again.run() == RunRecord("run 1", "package:Model", LAYOUT)
        first, second, third = (
            JournaledUpdate(version, frame, version + 0.5)
            for version, frame in enumerate((b"first", b"second", b"third"), 1)
        )
        assert list(again.updates(0)) == [first, second, third]
        assert list(again.updates(1, 2)) == [second]
        assert again.receipt(two, 9) == 1
        assert again.receipt(two, 12) == 3
        assert again.receipt(one, 9) is None
        assert again.last_receipts() == {one: LastReceipt(1, 2), two: LastReceipt(12, 3)}
        assert again.regimes() == [
            RegimeStart(0, REGIME),
            RegimeStart(2, Regime("tau", 1 / 3, 9), "operator"),
        ]
        assert again.evaluations() == [
            Evaluation(3, 4.0, 0.75, None, 1 << 40, 2),
            Evaluation(3, 5.0, 0.75, 0.5, 3, 2, {"f1": 1 / 3, "own \u00fc": None}),
        ]
        assert again.accounts() == [
            DeviceTotals(one, "one", 1, 0, 0),
            DeviceTotals(two, "two", 2, 1 << 41, 5),
        ]
        snapshot = again.snapshot()
        assert (snapshot.version, snapshot.average) == (0, None)
        assert snapshot.theta.tobytes() == THETA.tobytes()
        snapshot.theta[0] = 1  # not a view of the file's bytes


def test_snapshots_first_and_newest(journal: Journal) -> None:
    for version in range(1, 12):
        journal.add_update(version, 1, version, 0.0, 0.5, 10, b"")
        if version in (3, 7, 11):
            journal.add_snapshot(version, THETA + np.float32(version))
    journal.device_id("one")
    journal.commit()
    assert journal.snapshot().version == 11
    assert journal.snapshot(first=True).version == 0
    assert journal.snapshot().theta.tobytes() == (THETA + np.float32(11)).tobytes()


def test_a_snapshot_keeps_the_average_beside_theta(path: Path, journal: Journal) -> None:
    average = THETA * np.float32(1 / 3)
    for version in range(1, 5):
        journal.add_update(version, journal.device_id("one"), version, 0.0, 0.5, 10, b"")
    journal.add_snapshot(4, THETA, average)
    journal.commit()
    with closing(Journal(path)) as again:
        snapshot = again.snapshot()
        assert (snapshot.version, snapshot.theta.tobytes()) == (4, THETA.tobytes())
        assert snapshot.average is not None
        assert snapshot.average.tobytes() == average.tobytes()
        assert snapshot.average.dtype == np.float32
        snapshot.average[0] = 1  # not a view of the file's bytes
        assert again.snapshot(first=True).average is None
    journal.add_snapshot(4, THETA)
    assert journal.snapshot().average is None


def test_a_regime_keeps_its_average(journal: Journal) -> None:
    regimes = [(0, REGIME), (5, Regime("adacomp", 0.1, 6, 1 / 3)), (9, Regime("tau", 0.1, 6, 8.0))]
    done = 0
    for version, regime in regimes:
        for made in range(done + 1, version + 1):
            journal.add_update(made, 1, made, 0.0, 0.5, 10, b"")
        journal.add_regime(version, regime)
        done = version
    assert journal.regimes() == [RegimeStart(version, regime) for version, regime in regimes]
    assert [regime.average for _, regime in regimes] == [0.0, 1 / 3, 8.0]


def test_the_adjustment_that_holds_is_the_last_one(path: Path, journal: Journal) -> None:
    assert journal.adjustment() is None
    journal.add_adjustment(3, 0.1, 0.05)
    journal.add_adjustment(7, 0.1, 1 / 3)
    journal.commit()
    with closing(Journal(path)) as again:
        assert again.adjustment() == Adjustment(0.1, 1 / 3, 7)


def test_nothing_is_there_before_the_commit(path: Path, journal: Journal) -> None:
    device = journal.device_id("one")
    journal.add_update(1, device, 1, 0.0, 0.0, 1, b"frame")
    journal.add_snapshot(1, THETA)
    with closing(Journal(path)) as other:
        assert list(other.updates(0)) == []
        assert other.snapshot().version == 0
        journal.commit()
        assert list(other.updates(0)) == [JournaledUpdate(1, b"frame", 0.0)]
        assert other.snapshot().version == 1


def test_the_largest_numbers_of_the_wire_fit(journal: Journal) -> None:
    largest = (1 << 63) - 1
    device = journal.device_id("one")
    journal.add_update(1, device, largest, 0.0, 3e38, largest, b"")
    journal.commit()
    assert journal.receipt(device, largest) == 1


@pytest.mark.parametrize(
    "octets", [b"no database at all", b"SQLite format 3\0" + bytes(84)], ids=["text", "zeros"]
)
def test_what_is_no_database_is_named(path: Path, octets: bytes) -> None:
    path.write_bytes(octets * 50)
    with pytest.raises(JournalDamaged, match=r"journal\.sqlite is damaged, or no journal: .*restore a copy"):
        Journal(path)
    assert path.read_bytes() == octets * 50


def damaged(path: Path, statement: str, *values: object, sealed: bool = True) -> Journal:
    """The journal of three updates and a snapshot, after `statement`."""
    journal = Journal(path)
    journal.begin_run("run 1", "package:Model", LAYOUT, THETA, 1.0)
    device = journal.device_id("one")
    for version in (1, 2, 3):
        journal.add_update(version, device, version, 1.0, 0.5, 10, bytes([version]) * 10_000)
    journal.close()
    tampered(path, statement, *values, sealed=sealed)
    return Journal(path)


@pytest.mark.parametrize(("after", "until"), [(0, None), (0, 3), (1, None), (1, 2)])
def test_a_hole_in_the_versions_is_named(path: Path, after: int, until: int | None) -> None:
    with closing(damaged(path, "DELETE FROM updates WHERE version = 2")) as journal:
        with pytest.raises(
            JournalDamaged, match=r"journal\.sqlite: the update that made version 2 is missing"
        ):
            list(journal.updates(after, until))


def test_a_missing_end_is_named_where_an_end_is_asked_for(path: Path) -> None:
    with closing(damaged(path, "DELETE FROM updates WHERE version = 3")) as journal:
        assert [update.version for update in journal.updates(0)] == [1, 2]
        with pytest.raises(JournalDamaged, match="version 3 is missing"):
            list(journal.updates(0, 3))


@pytest.mark.parametrize("column", ["theta", "average"])
def test_a_truncated_snapshot_is_named(path: Path, column: str) -> None:
    with closing(damaged(path, f"UPDATE snapshots SET {column} = x'0000803f00'")) as journal:
        with pytest.raises(JournalDamaged, match="the snapshot of version 0 holds 5 bytes, the model 100"):
            journal.snapshot()


def test_a_journal_without_a_snapshot_or_a_run_is_damaged(path: Path) -> None:
    with closing(damaged(path, "DELETE FROM snapshots")) as journal:
        with pytest.raises(JournalDamaged, match="holds no snapshot"):
            journal.snapshot()
    tampered(path, "DELETE FROM meta")
    with pytest.raises(JournalDamaged, match="holds no run"):
        Journal(path)


@pytest.mark.parametrize("layout", [b"", b"\xc1", b"\x01", b"\x90", b"\x91\x92\xa1w\x91\xa1x"])
def test_a_layout_that_cannot_be_read_is_named(path: Path, layout: bytes) -> None:
    with closing(damaged(path, "UPDATE meta SET layout = ?", layout)) as journal:
        with pytest.raises(JournalDamaged, match="layout, start or data cannot be decoded"):
            journal.run()


@pytest.mark.parametrize("start", [b"", b"\xc1", b"\x01", b"\x92\x01\x01", b"\x92\x01\x91\x93\x03\x00\x00"])
def test_a_start_that_cannot_be_read_is_named(path: Path, start: bytes) -> None:
    with closing(damaged(path, "UPDATE meta SET start = ?", start)) as journal:
        with pytest.raises(JournalDamaged, match="layout, start or data cannot be decoded"):
            journal.run()


def test_how_the_first_model_is_made_is_kept(path: Path) -> None:
    start = Start(7, tuple(Filling(NORMAL, 0.0, 0.125) for _ in LAYOUT.tensors))
    with closing(Journal(path)) as journal:
        journal.begin_run("run 1", "package:Model", LAYOUT, THETA, 1.0, start)
    with closing(Journal(path)) as journal:
        assert journal.run() == RunRecord("run 1", "package:Model", LAYOUT, start)


def test_pages_that_SQLite_cannot_read_are_damage(path: Path) -> None:
    damaged(path, "SELECT 1").close()
    octets = bytearray(path.read_bytes())
    start = octets.index(bytes([2]) * 1000) // 16384 * 16384
    octets[start : start + 16384] = b"\xff" * 16384
    path.write_bytes(octets)
    with closing(Journal(path)) as journal:
        assert journal.run() is not None
        with pytest.raises(
            JournalDamaged, match="is damaged, or no journal: database disk image is malformed"
        ):
            list(journal.updates(0))


def test_a_missing_table_is_damage(path: Path) -> None:
    with pytest.raises(JournalDamaged, match="its evaluations cannot be read: no such table: evaluations"):
        damaged(path, "DROP TABLE evaluations", sealed=False)


def test_a_locked_file_is_no_damage(path: Path, journal: Journal) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        database(journal).execute("PRAGMA busy_timeout = 0")
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            journal.device_id("new")


def test_a_commit_is_on_the_disk_when_it_returns(path: Path) -> None:
    """WAL with synchronous = FULL (2): SQLite flushes the log at every commit."""
    journal = Journal(path)
    assert database(journal).execute("PRAGMA synchronous").fetchone() == (2,)
    assert database(journal).execute("PRAGMA journal_mode").fetchone() == ("wal",)


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
    (pages,) = database(journal).execute("PRAGMA page_count").fetchone()
    database(journal).execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        journal.add_snapshot(1, np.zeros(100_000, np.float32))
    for version, frame in enumerate((b"small", b"small", bytes(1 << 20)), 1):
        journal.add_update(version, 1, version, 0.0, 0.5, 10, frame)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        journal.commit()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM updates").fetchone() == (0,)
    journal._updates.clear()
