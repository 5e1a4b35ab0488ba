"""`verify` says what is whole, `repair` keeps it: the same bits up to a version, and nothing behind it."""

import fcntl
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.server.descent.regime import Regime
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.journal import Journal
from edgeflock.server.ledger import repair, verify
from edgeflock.server.ledger.recovery import replay
from edgeflock.server.ledger.verifying import check
from edgeflock.shared.errors import ConfigError, JournalDamaged
from edgeflock.shared.protocol.frames import Evaluation
from tests.server.pushes import LAYOUT, REGIME, Watched, copy_as_killed, recovered, tampered

FILE = "journal.sqlite"
OTHER = Regime("tau", 0.2, 6, average=3.0)


Run = tuple[Path, dict[int, bytes]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """32 updates under three regimes, the last of an operator's; the last six in the write-ahead log.

    (where `kill -9` left it, theta at each version as the reference has it).
    """
    (tmp_path / "run").mkdir()
    run = Watched(tmp_path / "run", bounds=EngineLimits(snapshot_every=8))
    thetas = {0: np.array(run.slow.theta, np.float32).tobytes()}

    def commit(count: int) -> None:
        for _ in range(count):
            run.commit()
            thetas[run.slow.version] = np.array(run.slow.theta, np.float32).tobytes()

    commit(9)
    run.reopen(OTHER)
    run.engine.steering.record(Evaluation(9, 2.0, 0.5, 0.75, 10, 20), [(1, 300, 40)])
    commit(10)
    run.engine.steering.adjust(0.05, OTHER.learning_rate)
    run.slow.regime = run.engine.parameters.regime
    commit(7)
    run.reopen()
    run.engine.steering.record(Evaluation(26, 3.0, 0.25, None, 30, 40), [(2, 500, 60)])
    commit(6)
    killed = copy_as_killed(run.directory, tmp_path / "killed")
    run.journal.close()
    return killed, thetas


def test_a_whole_journal_is_said_to_be(run: Run) -> None:
    found = verify(run[0] / FILE)
    assert (found.damage, found.version, found.acknowledged, found.whole) == ([], 32, 32, 32)
    assert found.repairs == []


def test_it_may_be_verified_while_its_server_writes(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    for _ in range(5):
        run.commit(2)
        assert verify(tmp_path / FILE).damage == []
    assert verify(tmp_path / FILE).version == 10


def test_a_copy_of_a_running_journal_is_whole(tmp_path: Path) -> None:
    """As docs/operations.md says: the mark first, for it must not know more than the journal."""
    run, backup = Watched(tmp_path), tmp_path / "backup"
    backup.mkdir()
    run.commit(4)
    (backup / f"{FILE}-mark").write_bytes((tmp_path / f"{FILE}-mark").read_bytes())
    run.commit(3)
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        db.execute("VACUUM INTO ?", (str(backup / FILE),))
    run.commit(5)
    found = verify(backup / FILE)
    assert (found.damage, found.version, found.acknowledged) == ([], 7, 4)
    assert recovered(backup, REGIME).version == 7


@pytest.mark.parametrize("to", [0, 3, 9, 14, 19, 20, 26, 30, 32])
def test_what_is_kept_is_what_it_was(run: Run, to: int) -> None:
    """By a replay from version 0 and by a start, under the regime of then."""
    directory, thetas = run
    path = directory / FILE
    done = repair(path, to, 5.0)
    assert (done.before, done.version, done.given_up, done.updates) == ("run", to, 32, 32 - to)
    found = verify(path)
    assert (found.damage, found.run, found.version, found.acknowledged) == ([], done.run, to, to)
    assert found.repairs == [(to, 32, "run")]
    with closing(Journal(path)) as journal:
        kept = replay(journal, LAYOUT)
        (*_, last) = journal.regimes()
        reported = journal.run()
        assert reported is not None
        assert reported.run == done.run != "run"
        assert [evaluation.version for evaluation in journal.evaluations()] == [v for v in (9, 26) if v <= to]
        assert [account.ingress for account in journal.accounts()] == [300, 500, 0]
    assert (kept.version, kept.theta.tobytes()) == (to, thetas[to])
    again = recovered(directory, last.regime)
    assert (again.version, again.theta.tobytes(), again.oldest) == (to, thetas[to], kept.oldest)
    assert (again.average is None) == (kept.average is None)
    if again.average is not None and kept.average is not None:
        assert again.average.tobytes() == kept.average.tobytes()


def test_the_old_files_stay(run: Run) -> None:
    path = run[0] / FILE
    before = {file.name: file.read_bytes() for file in run[0].glob(FILE + "*")}
    first = repair(path, 20, 5.0)
    again = repair(path, 10, 6.0)
    assert [first.backup.name, again.backup.name] == [f"{FILE}.before-repair-1", f"{FILE}.before-repair-2"]
    for name, octets in before.items():
        assert (run[0] / name.replace(FILE, first.backup.name)).read_bytes() == octets
    assert verify(first.backup).version == 32
    assert verify(path).repairs == [(10, 20, first.run)]


def test_a_repaired_run_goes_on_and_is_repaired_again(run: Run, tmp_path: Path) -> None:
    repair(run[0] / FILE, 26, 5.0)
    parameters = recovered(run[0], OTHER)
    assert parameters.version == 26
    with closing(Journal(run[0] / FILE)) as journal:
        assert journal.last_receipts().keys() == {1, 2, 3}
        assert {journal.device_id(f"device {i}") for i in range(3)} == {1, 2, 3}
        assert journal.device_id("new") == 4
    repair(run[0] / FILE, 26, 6.0)
    assert [given for _, given, _ in verify(run[0] / FILE).repairs] == [32, 26]


DAMAGE = {
    "the log is lost": (None, 26, "it ends at version 26, and version 32 was acknowledged"),
    "a record": ("UPDATE updates SET frame = x'00' WHERE version = 13", 12, "record .* version 13"),
    "a hole": ("DELETE FROM updates WHERE version = 30", 29, "version 30 is missing"),
    "the newest snapshot": (
        "UPDATE snapshots SET theta = substr(theta, 5) WHERE version = (SELECT max(version) FROM snapshots)",
        32,
        "the snapshot of version 26 has a wrong checksum",
    ),
    "all snapshots but the first": (
        "UPDATE snapshots SET theta = substr(theta, 5) WHERE version > 0",
        32,
        "the snapshot of version 26 has a wrong checksum",
    ),
    "a device": ("UPDATE devices SET name = 'x' WHERE id = 2", 32, "row 2 of its devices"),
    "no device": ("DELETE FROM devices WHERE id = 2", 32, "row 2 of its devices is missing"),
    "an evaluation": ("UPDATE evaluations SET loss = 9 WHERE version = 9", 32, "row 1 of its evaluations"),
    "a table of evaluations": ("DROP TABLE evaluations", 32, "its evaluations cannot be read"),
    "a regime": ("UPDATE regimes SET rule = 'none' WHERE version = 19", 19, "row 3 of its regimes"),
    "a regime is missing": ("DELETE FROM regimes WHERE version = 9", 9, "row 2 of its regimes is missing"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_whole_is_known_and_can_be_kept(run: Run, kind: str) -> None:
    directory, thetas = run
    path, (statement, whole, said) = directory / FILE, DAMAGE[kind]
    if statement is None:
        path.with_name(f"{FILE}-wal").unlink()
    else:
        tampered(path, statement)
    found = verify(path)
    assert found.whole == whole
    assert any(re.search(said, text) for text in found.damage), found.damage
    with pytest.raises(ConfigError, match=f"--to {whole + 1}: .* intact from version 0 to {whole}"):
        repair(path, whole + 1, 5.0)
    repair(path, whole, 5.0)
    assert verify(path).damage == []
    with closing(Journal(path)) as journal:
        assert replay(journal, LAYOUT).theta.tobytes() == thetas[whole]
    assert recovered(directory, OTHER).theta.tobytes() == thetas[whole]


def test_a_lost_name_is_given_another_one(run: Run) -> None:
    path = run[0] / FILE
    tampered(path, "UPDATE devices SET name = 'x' WHERE id = 2")
    repair(path, 32, 5.0)
    with closing(Journal(path)) as journal:
        assert [account.name for account in journal.accounts()] == [
            "device 0",
            "unknown device 2",
            "device 2",
        ]


def test_pages_that_SQLite_cannot_read(run: Run) -> None:
    path = run[0] / FILE
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'evaluations'").fetchone()
    octets = bytearray(path.read_bytes())
    octets[(page - 1) * 16384 : page * 16384] = b"\xff" * 16384
    path.write_bytes(octets)
    found = verify(path)
    assert found.whole == 32
    assert any("its evaluations cannot be read" in text for text in found.damage)
    repair(path, 32, 5.0)
    assert verify(path).damage == []


@pytest.mark.parametrize("keep", [True, False])
def test_where_records_were_dropped_only_snapshots_lead(tmp_path: Path, keep: bool) -> None:
    run = Watched(tmp_path, REGIME, EngineLimits(snapshot_every=10, keep_updates=keep))
    for _ in range(33):
        run.commit()
    run.engine.close()
    path = tmp_path / FILE
    if keep:
        assert repair(path, 12, 5.0).version == 12
        return
    assert verify(path).damage == []
    with pytest.raises(ConfigError, match=r"--to 12: .* no intact snapshot .* use --to 33"):
        repair(path, 12, 5.0)
    assert repair(path, 30, 5.0).version == 30
    assert recovered(tmp_path, REGIME).version == 30


def test_a_journal_that_is_hosted_is_not_repaired(run: Run) -> None:
    with open(run[0] / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = (run[0] / FILE).read_bytes()
        with pytest.raises(ConfigError, match="another server hosts it"):
            repair(run[0] / FILE, 20, 5.0)
        assert (run[0] / FILE).read_bytes() == before


def test_what_is_lost_with_the_run_cannot_be_repaired(run: Run) -> None:
    tampered(run[0] / FILE, "UPDATE meta SET layout = x'90'")
    with pytest.raises(JournalDamaged, match="restore a copy"):
        repair(run[0] / FILE, 20, 5.0)
    assert not list(run[0].glob("*repair*"))


def test_an_unreadable_end_costs_no_update_before_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a page of the last update's frame is damaged: the tables cannot be read completely."""
    checked = check

    def unreadable(*arguments: Any) -> Any:
        report, found = checked(*arguments)
        found.unreadable |= {"updates", "regimes", "snapshots"}
        return report, found

    monkeypatch.setattr("edgeflock.server.ledger.repairing.check", unreadable)
    where, thetas = run
    repair(where / FILE, 26, 5.0)
    assert verify(where / FILE).damage == []
    assert recovered(where, OTHER).theta.tobytes() == thetas[26]


def test_no_journal(tmp_path: Path) -> None:
    for missing in (tmp_path / FILE, tmp_path / "nowhere" / FILE):
        with pytest.raises(ConfigError, match="journal.sqlite"):
            verify(missing)
        with pytest.raises(ConfigError, match="there is no such file"):
            repair(missing, 0, 5.0)
