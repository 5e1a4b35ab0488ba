"""One journal in SQLite and in PostgreSQL: the same rows, the same checksums, the same model."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.descent.regime import Regime
from edgeflock.server.engine.engine import Engine
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.records import (
    Adjustment,
    DeviceTotals,
    JournaledUpdate,
    LastReceipt,
    RegimeStart,
    RunRecord,
)
from edgeflock.server.journal.stores.schema import SCHEMA
from edgeflock.server.ledger import copy, verify
from edgeflock.server.ledger.claim import open_journal
from edgeflock.server.ledger.recovery import recover, replay
from edgeflock.shared.errors import ConfigError, JournalDamaged
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.protocol.messages import Receipt
from tests.postgres import Cluster
from tests.server.pushes import LAYOUT, REGIME, THETA, Watched, commit, push, sparse_update

LEASE = 60.0


class Place:
    """Where a test's journals lie."""

    def __init__(self, kind: str, directory: Path, postgres: Cluster | None) -> None:
        self.kind, self.directory, self._postgres = kind, directory, postgres
        self.url = self.another()

    def another(self) -> str:
        if self._postgres is not None:
            return self._postgres.fresh()
        folder = self.directory / f"place-{len(list(self.directory.iterdir()))}"
        folder.mkdir()
        return f"sqlite:{folder / 'journal.sqlite'}"

    def open(self) -> Journal:
        return open_journal(self.url, LEASE)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    postgres = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    return Place(request.param, tmp_path, postgres)


@pytest.fixture
def journal(place: Place) -> Iterator[Journal]:
    opened = place.open()
    opened.begin_run("run 1", "package:Model", LAYOUT, THETA, 1.0)
    yield opened
    opened.abandon()


def test_what_is_written_is_there_when_opened_again(place: Place, journal: Journal) -> None:
    one, two = journal.device_id("one"), journal.device_id("tw\u00f6")
    journal.add_regime(0, REGIME)
    journal.add_update(1, two, 9, 1.5, 0.25, 10, b"first")
    journal.add_update(2, one, 1, 2.5, float("nan"), 20, bytes(range(256)))
    journal.add_regime(2, Regime("tau", 1 / 3, 9, rounds=True), "operator")
    journal.commit()
    journal.add_update(3, two, 12, 3.5, -0.0, 30, b"third")
    journal.add_snapshot(3, THETA * 2, THETA * 3, b"memory")
    journal.add_evaluation(Evaluation(3, 4.0, float("nan"), None, 1 << 40, 2))
    journal.add_evaluation(Evaluation(3, 5.0, 0.5, 0.25, 1, 2, {"f1": 0.1, "auroc": None}))
    journal.add_adjustment(3, 0.1, 0.05)
    journal.add_account(two, 1 << 41, 5)
    journal.close()
    with closing(place.open()) as again:
        assert again.run() == RunRecord("run 1", "package:Model", LAYOUT)
        assert [update.frame for update in again.updates(0)] == [b"first", bytes(range(256)), b"third"]
        assert list(again.updates(2)) == [JournaledUpdate(3, b"third", 3.5)]
        assert (again.version, again.receipt(two, 12), again.receipt(one, 9)) == (3, 3, None)
        assert again.last_receipts() == {one: LastReceipt(1, 2), two: LastReceipt(12, 3)}
        assert [turn.regime.rule for turn in again.regimes()] == ["adacomp", "tau"]
        assert again.regimes()[0] == RegimeStart(0, REGIME)
        assert again.evaluations() == [
            Evaluation(3, 4.0, None, None, 1 << 40, 2),
            Evaluation(3, 5.0, 0.5, 0.25, 1, 2, {"f1": 0.1, "auroc": None}),
        ]
        assert again.adjustment() == Adjustment(0.1, 0.05, 3)
        assert again.accounts() == [
            DeviceTotals(one, "one", 1, 0, 0),
            DeviceTotals(two, "tw\u00f6", 2, 1 << 41, 5),
        ]
        assert again.update_origin(2) == ("one", 1)
        newest = again.snapshot()
        assert newest.average is not None
        assert (newest.version, newest.theta.tobytes()) == (3, (THETA * 2).tobytes())
        assert (newest.average.tobytes(), newest.memory) == ((THETA * 3).tobytes(), b"memory")
        assert again.snapshot(first=True).theta.tobytes() == THETA.tobytes()
        again.drop_frames(2)
        assert again.first_stored() == 3


def test_what_was_not_committed_is_not_there(place: Place, journal: Journal) -> None:
    device = journal.device_id("one")
    journal.add_update(1, device, 1, 1.0, 0.5, 10, b"kept")
    journal.commit()
    journal.add_update(2, device, 2, 2.0, 0.5, 10, b"lost")
    journal.add_snapshot(2, THETA)
    journal.abandon()
    with closing(place.open()) as again:
        assert [update.version for update in again.updates(0)] == [1]
        assert again.snapshot().version == 0


def test_two_cannot_write_at_once(place: Place, journal: Journal) -> None:
    if place.kind == "sqlite":
        pytest.skip("its folder's lock is the claim's: test_hosting.py")
    with pytest.raises(ConfigError, match="another server hosts it"):
        place.open()
    journal.close()
    for _ in range(10):  # at once, however long the database takes to notice that a connection is gone
        place.open().close()


def watched(tmp_path: Path) -> Watched:
    """A run of all kinds of updates in SQLite, over regimes, snapshots and a group of several."""
    folder = tmp_path / "watched"
    folder.mkdir()
    run = Watched(folder, Regime("adacomp", 1 / 3, 6, average=4.0))
    for count in (1, 5, 16, 3):
        run.commit(count)
    run.reopen(Regime("tau", 1 / 7, 6, average=4.0))
    run.commit(7)
    run.engine.steering.record(Evaluation(32, 4.0, 0.5, 0.25, 7, 8), [(1, 2, 3)])
    run.commit(2)
    return run


def test_a_copy_replays_to_the_same_bits(place: Place, tmp_path: Path) -> None:
    run = watched(tmp_path)
    theta = run.engine.parameters.theta.tobytes()
    run.journal.abandon()  # as if it were killed: what follows the last snapshot is replayed
    moved = copy(f"sqlite:{run.directory / 'journal.sqlite'}", place.url)
    assert (moved.run, moved.version) == ("run", 34)
    with closing(place.open()) as journal:
        assert replay(journal, LAYOUT).theta.tobytes() == theta, "from version 0"
        assert recover(journal, LAYOUT, Regime("tau", 1 / 7, 6, average=4.0)).theta.tobytes() == theta
    assert not verify(place.url).damage
    back = tmp_path / "back"
    back.mkdir()
    again = copy(place.url, f"sqlite:{back / 'journal.sqlite'}")
    assert (again.theta, again.version) == (moved.theta, moved.version)
    with closing(Journal(back / "journal.sqlite")) as journal:
        assert replay(journal, LAYOUT).theta.tobytes() == theta


def test_a_copy_replaces_nothing(place: Place, journal: Journal, tmp_path: Path) -> None:
    journal.close()
    with pytest.raises(ConfigError, match="holds no run"):
        copy(place.another(), place.another()) if place.kind == "postgresql" else copy(
            _empty(tmp_path), place.url
        )
    other = tmp_path / "other"
    other.mkdir()
    copy(place.url, f"sqlite:{other / 'journal.sqlite'}")
    with pytest.raises(ConfigError, match="holds a run already, run 1"):
        copy(f"sqlite:{other / 'journal.sqlite'}", place.url)


def _empty(tmp_path: Path) -> str:
    folder = tmp_path / "empty"
    folder.mkdir()
    Journal(folder / "journal.sqlite").close()
    return f"sqlite:{folder / 'journal.sqlite'}"


def test_the_same_pushes_leave_the_same_in_both(postgres: Cluster, tmp_path: Path) -> None:
    """The same model, in the same chains of checksums, also after a start in between."""
    left = []
    for url in (f"sqlite:{tmp_path / 'journal.sqlite'}", postgres.fresh()):
        for start in range(2):
            journal = open_journal(url, LEASE)
            if not start:
                journal.begin_run("run", "package:Model", LAYOUT, THETA, 1.0)
            engine = Engine(journal, LAYOUT, recover(journal, LAYOUT, REGIME), Asynchronous())
            device = engine.device_id("one")
            pushes = [
                push(device, sparse_update(3 * start + i, 2 * start, {i: 0.5, 7: 1 / 3})) for i in (1, 2)
            ]
            assert [type(answer) for answer in commit(engine, pushes)] == [Receipt, Receipt]
            resent = commit(engine, pushes[:1])
            assert resent == [Receipt(3 * start + 1, 2 * start + 1, None)]
            left.append((engine.parameters.theta.tobytes(), dict(journal._heads)))
            engine.close()
    assert left[:2] == left[2:]


@pytest.mark.parametrize(
    ("statement", "reported"),
    [
        (
            "UPDATE updates SET loss = 7 WHERE version = 2",
            "the update that made version 2 has a wrong checksum",
        ),
        ("DELETE FROM updates WHERE version = 2", "the update that made version 2 is missing"),
        ("UPDATE snapshots SET sum = 1 WHERE version = 0", "the snapshot of version 0 has a wrong checksum"),
        ("UPDATE devices SET name = 'two'", "row 1 of its devices has a wrong checksum"),
        ("DROP TABLE evaluations", "evaluations"),
    ],
)
def test_damage_is_found(postgres: Cluster, statement: str, reported: str) -> None:
    url = postgres.fresh()
    with closing(open_journal(url, LEASE)) as journal:
        journal.begin_run("run 1", "package:Model", LAYOUT, THETA, 1.0)
        journal.add_regime(0, REGIME)
        device = journal.device_id("one")
        for version in (1, 2, 3):
            journal.add_update(version, device, version, 1.0, 0.5, 10, b"")
    schema = url.rpartition("%3D")[2]
    postgres.execute(f"SET search_path = {schema}; {statement}")
    try:
        found = verify(url).damage
    except JournalDamaged as damage:
        found = [str(damage)]
    assert any(reported in text for text in found), found


def test_an_older_journal_is_refused_and_left_alone(postgres: Cluster) -> None:
    url = postgres.fresh()
    with closing(open_journal(url, LEASE)) as journal:
        journal.begin_run("run 1", "package:Model", LAYOUT, THETA, 1.0)
    search_path = f"SET search_path = {url.rpartition('%3D')[2]}"
    postgres.execute(f"{search_path}; UPDATE lease SET schema = {SCHEMA - 1}")
    reported = (
        f"has journal schema {SCHEMA - 1} and this Edgeflock reads {SCHEMA} only; open it with .* wrote it"
    )
    with pytest.raises(ConfigError, match=reported):
        open_journal(url, LEASE)
    with pytest.raises(ConfigError, match=reported):
        verify(url)
    postgres.execute(f"{search_path}; UPDATE lease SET schema = {SCHEMA}")
    assert verify(url).damage == []


def test_no_database_no_run() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra postgres)")
    with pytest.raises(ConfigError, match="postgresql://me@127.0.0.1:1/runs cannot be reached"):
        open_journal("postgresql://me:secret@127.0.0.1:1/runs", LEASE)


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pip install '.*\[postgres\]'"):
        open_journal("postgresql://127.0.0.1/runs", LEASE)
