"""What a damaged disk may do: nothing that a start passes over. Either it comes to the same theta at the same
version as before, or it says what is wrong; `verify` says it in any case.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest

from edgeflock.server.descent.regime import Regime
from edgeflock.server.engine.limits import EngineLimits
from edgeflock.server.journal import Journal
from edgeflock.server.journal.stores.chain import Facts, update_sum, vector_sum
from edgeflock.server.ledger import open_engine, verify
from edgeflock.server.ledger.claim import claim_run
from edgeflock.shared.errors import JournalDamaged, JournalTooNew
from edgeflock.shared.model.start import NORMAL, Filling, Start, generate
from edgeflock.shared.protocol.frames import Evaluation
from edgeflock.shared.settings.config import parse
from tests.server.pushes import LAYOUT, Watched, copy_as_killed, tampered

CONFIG = parse(overrides=["coordination.window=6", "coordination.average=3", "downlink.mode=lossy"])
REGIME = Regime.from_config(CONFIG)
START = Start(7, tuple(Filling(NORMAL, 0.0, 0.125) for _ in LAYOUT.tensors))
FILE = "journal.sqlite"
END = 58
"""The last version of `killed`."""

Bits = tuple[int, bytes, bytes]


def begun(directory: Path) -> Path:
    directory.mkdir()
    journal = Journal(directory / FILE)
    journal.begin_run("run", "package:Model", LAYOUT, generate(START, LAYOUT), 1.0, START)
    journal.close()
    return directory


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `kill -9` left of a run with all that a journal can hold, half of it in the write-ahead log.

    Snapshots at 0, 47 and 52; regimes at 0, 20 and 47.
    """
    scratch = tmp_path_factory.mktemp("damage")
    run = Watched(begun(scratch / "run"), Regime("tau", 0.2, 6), EngineLimits(snapshot_every=1000))
    run.commit(20)
    run.reopen(REGIME)
    for size in (7, 1, 12):
        run.commit(size)
    run.engine.steering.record(Evaluation(40, 2.0, 0.5, 0.75, 10, 20), [(1, 300, 40)])
    run.reopen()
    run.commit(7)
    run.engine.steering.adjust(0.025, REGIME.learning_rate)
    run.engine.steering.record(Evaluation(47, 3.0, 0.25, None, 30, 40), [(2, 500, 60)])
    run.slow.regime = run.engine.parameters.regime
    run.commit(5)
    run.engine.steering.checkpoint()
    for size in (1, 1, 3, 1):
        run.commit(size)
    return copy_as_killed(run.directory, scratch / "killed")


@pytest.fixture(scope="module")
def known(killed: Path, tmp_path_factory: pytest.TempPathFactory) -> Bits:
    bits = started(fresh(killed, tmp_path_factory.mktemp("known") / "whole"))
    assert bits[0] == END
    return bits


def fresh(directory: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(directory, to))


def started(directory: Path) -> Bits:
    """(version, theta, average) that a server in `directory` starts with."""
    journal = Journal(directory / FILE)
    try:
        parameters = open_engine(journal, LAYOUT, CONFIG).parameters
        assert parameters.average is not None
        return parameters.version, parameters.theta.tobytes(), parameters.average.tobytes()
    finally:
        journal.abandon()


def refused(directory: Path, known: Bits) -> str:
    """What a start says of the damage; empty if it came to the same bits."""
    try:
        bits = started(directory)
    except (JournalDamaged, JournalTooNew, sqlite3.OperationalError) as error:
        return str(error)  # SQLite's own, of a file that says it is read-only, `claimed` names
    assert bits == known
    return ""


def flips(octets: bytes, number: int) -> list[tuple[int, int]]:
    """(place, bit), where something is: the most of a small database is empty pages."""
    random, places = Random(15), [place for place, octet in enumerate(octets) if octet]
    return [(random.choice(places), 1 << random.randrange(8)) for _ in range(number)]


@pytest.mark.parametrize("file", [FILE, f"{FILE}-wal", f"{FILE}-mark"])
def test_no_flipped_bit_is_passed_over(killed: Path, known: Bits, tmp_path: Path, file: str) -> None:
    """120 in each file: a start notices those that change what it comes to, in the log most of them."""
    if file == FILE:
        killed = fresh(killed, tmp_path / "stopped")
        with closing(sqlite3.connect(killed / FILE)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    octets = (killed / file).read_bytes()
    noticed = 0
    for place, bit in flips(octets, 120):
        damaged = fresh(killed, tmp_path / "damaged")
        changed = bytearray(octets)
        changed[place] ^= bit
        (damaged / file).write_bytes(changed)
        noticed += bool(refused(damaged, known))
    print(f"{file}: {noticed} of 120 refused, the others harmless")
    assert noticed >= {FILE: 1, f"{FILE}-wal": 100, f"{FILE}-mark": 0}[file]


@pytest.mark.parametrize("left", [0, 31, 32, 5000, 0.3, 0.6, 0.9, -1])
def test_a_log_that_was_cut_short_is_no_end_of_the_run(
    killed: Path, known: Bits, tmp_path: Path, left: float
) -> None:
    damaged = fresh(killed, tmp_path / "damaged")
    log = damaged / f"{FILE}-wal"
    octets = log.read_bytes()
    log.write_bytes(octets[: int(left * len(octets)) if isinstance(left, float) else left])
    said = refused(damaged, known)
    assert f"it ends at version {verify(damaged / FILE).version}, and version {END} was acknowledged" in said
    assert verify(damaged / FILE).damage


def test_a_refused_start_leaves_what_there_is(killed: Path, known: Bits, tmp_path: Path) -> None:
    """Of a log with a flipped bit in the middle SQLite would throw away what is behind it."""
    damaged = fresh(killed, tmp_path / "damaged")
    log = damaged / f"{FILE}-wal"
    octets = bytearray(log.read_bytes())
    octets[len(octets) // 2] ^= 1
    log.write_bytes(octets)
    for _ in range(2):
        assert "was acknowledged" in refused(damaged, known)
    assert log.read_bytes() == octets
    octets[len(octets) // 2] ^= 1
    log.write_bytes(octets)
    assert refused(damaged, known) == ""


SNAPSHOT = "SET {} WHERE version = (SELECT max(version) FROM snapshots)"
IN_TABLES = {
    "the last update deleted": ("DELETE FROM updates WHERE version = 58", "ends at version 57"),
    "an update deleted": ("DELETE FROM updates WHERE version = 55", "that made version 55 is missing"),
    "a record changed": (
        "UPDATE updates SET frame = (SELECT frame FROM updates WHERE version = 56) WHERE version = 57",
        "record of the update that made version 57",
    ),
    "a record cut short": (
        "UPDATE updates SET frame = substr(frame, 1, length(frame) - 1) WHERE version = 57",
        "record of the update that made version 57",
    ),
    "a sequence changed": (
        "UPDATE updates SET sequence = sequence + 1 WHERE version = 54",
        "the update that made version 54 has a wrong checksum",
    ),
    "another device's": (
        "UPDATE updates SET device = 1 + device % 3 WHERE version = 54",
        "the update that made version 54 has a wrong checksum",
    ),
    "two updates swapped": (
        "UPDATE updates SET version = CASE version WHEN 55 THEN -56 ELSE -55 END WHERE version IN (55, 56)",
        "",
    ),
    "an old update deleted": ("DELETE FROM updates WHERE version = 5", None),
    "an old record changed": ("UPDATE updates SET frame = x'00' WHERE version = 5", None),
    "a zeroed snapshot": (
        "UPDATE snapshots " + SNAPSHOT.format("theta = zeroblob(length(theta))"),
        "the snapshot of version 52 has a wrong checksum",
    ),
    "a snapshot cut short": (
        "UPDATE snapshots " + SNAPSHOT.format("theta = substr(theta, 1, 8)"),
        "the snapshot of version 52 has a wrong checksum",
    ),
    "an average cut short": (
        "UPDATE snapshots " + SNAPSHOT.format("average = substr(average, 1, 8)"),
        "the snapshot of version 52 has a wrong checksum",
    ),
    "no average": (
        "UPDATE snapshots " + SNAPSHOT.format("average = NULL"),
        "the snapshot of version 52 has a wrong checksum",
    ),
    "the first snapshot cut short": (
        "UPDATE snapshots SET theta = substr(theta, 1, 8) WHERE version = 0",
        "the snapshot of version 0 has a wrong checksum",
    ),
    "the first snapshot deleted": ("DELETE FROM snapshots WHERE version = 0", "no snapshot of version 0"),
    "snapshots of other versions": (
        "UPDATE snapshots SET version = version + 1 WHERE version > 0",
        "the snapshot of version 53 has a wrong checksum",
    ),
    "all newer snapshots deleted": (
        "DELETE FROM snapshots WHERE version > 0",
        "the snapshot of version 47 is missing",
    ),
    "the last regime deleted": ("DELETE FROM regimes WHERE version = 47", "of its regimes 2 are left"),
    "a regime deleted": ("DELETE FROM regimes WHERE version = 20", "row 2 of its regimes is missing"),
    "all regimes deleted": ("DELETE FROM regimes", "of its regimes 0 are left"),
    "a regime changed": (
        "UPDATE regimes SET learning_rate = 0.5 WHERE version = 20",
        "row 2 of its regimes has a wrong checksum",
    ),
    "another layout": ("UPDATE meta SET layout = x'90'", "row 1 of its meta has a wrong checksum"),
    "another run": ("UPDATE meta SET run = 'ruin'", "row 1 of its meta has a wrong checksum"),
    "another start": ("UPDATE meta SET start = NULL", "row 1 of its meta has a wrong checksum"),
    "a device deleted": ("DELETE FROM devices WHERE id = 2", "row 2 of its devices is missing"),
    "the last device deleted": ("DELETE FROM devices WHERE id = 3", "of its devices 2 are left"),
    "a device renamed": ("UPDATE devices SET name = 'x' WHERE id = 3", "row 3 of its devices has a wrong"),
    "an evaluation changed": (
        "UPDATE evaluations SET loss = 0 WHERE version = 40",
        "row 1 of its evaluations",
    ),
    "an evaluation deleted": ("DELETE FROM evaluations WHERE version = 47", "of its evaluations 1 are left"),
    "an adjustment changed": ("UPDATE adjustments SET chosen = 9", "row 1 of its adjustments has a wrong"),
    "an adjustment deleted": ("DELETE FROM adjustments", "of its adjustments 0 are left"),
    "traffic that is none": ("UPDATE devices SET ingress = 'much' WHERE id = 3", ""),
}
"""-> what is done, and what a start says; None: nothing, since it does not read so far back."""


@pytest.mark.parametrize("kind", IN_TABLES)
def test_damage_in_tables_is_named(killed: Path, known: Bits, tmp_path: Path, kind: str) -> None:
    statement, said = IN_TABLES[kind]
    damaged = fresh(killed, tmp_path / "damaged")
    tampered(damaged / FILE, statement)
    if "traffic" in kind:
        with closing(Journal(damaged / FILE)) as journal:
            with pytest.raises(JournalDamaged, match="the traffic of device 'device 2' is no number"):
                journal.accounts()
        return
    found = refused(damaged, known)
    assert (said or "") in found
    assert bool(found) == (said is not None)
    assert verify(damaged / FILE).damage


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no journal": (lambda path: path.unlink(), f"holds no run, and version {END} was acknowledged"),
    "an empty journal": (lambda path: path.write_bytes(b""), f"holds no run, and version {END} was"),
    "no mark": (lambda path: path.with_name(f"{FILE}-mark").unlink(), "-mark, .* is missing or damaged"),
    "an empty mark": (lambda path: path.with_name(f"{FILE}-mark").write_bytes(b""), "is missing or damaged"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_lost_file_is_no_new_run(killed: Path, known: Bits, tmp_path: Path, kind: str) -> None:
    damage, said = FILES[kind]
    damaged = fresh(killed, tmp_path / "damaged")
    path = damaged / FILE
    with closing(sqlite3.connect(path)):  # no log beside the journal that would bring it back
        pass
    for suffix in ("-wal", "-shm"):
        path.with_name(FILE + suffix).unlink(missing_ok=True) if "journal" in kind else None
    damage(path)
    with pytest.raises(JournalDamaged, match=said):
        started(damaged)


def test_a_mark_of_another_run_is_refused(killed: Path, known: Bits, tmp_path: Path) -> None:
    other = Watched(begun(tmp_path / "other"))
    other.commit(3)
    other.engine.close()
    damaged = fresh(killed, tmp_path / "damaged")
    shutil.copy(tmp_path / "other" / f"{FILE}-mark", damaged)
    assert "differ from those in journal.sqlite-mark" in refused(damaged, known)


@pytest.mark.parametrize("behind", [1, 2, 5])
def test_killed_between_the_commit_and_its_note(
    tmp_path: Path, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal may know more than the mark."""
    run = Watched(tmp_path)
    run.commit(4)
    with monkeypatch.context() as patch:
        patch.setattr("edgeflock.server.journal.stores.mark.ProgressFile.note", lambda *_, **__: None)
        run.engine.device_id("another")
        for _ in range(behind):
            run.commit(2)
    run.reopen(killed=True)
    run.check()
    assert run.engine.published.version == 4 + 2 * behind
    run.commit(3)
    run.reopen(killed=True)
    run.check()


def test_a_start_names_the_command_that_says_more(killed: Path, tmp_path: Path) -> None:
    damaged = fresh(killed, tmp_path / "damaged")
    (damaged / f"{FILE}-wal").unlink()
    theta = generate(START, LAYOUT)
    with pytest.raises(
        JournalDamaged, match=r"was acknowledged; .*: edgeflock journal verify .*/journal.sqlite$"
    ):
        with claim_run(damaged, "server.directory", LAYOUT, theta, CONFIG):
            pass
    tampered(fresh(killed, damaged) / FILE, "UPDATE updates SET frame = x'00' WHERE version = 57")
    with pytest.raises(JournalDamaged, match=r"version 57 .*: edgeflock journal verify .*/journal.sqlite$"):
        with claim_run(damaged, "server.directory", LAYOUT, theta, CONFIG):
            pass


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_kept_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with claim_run(tmp_path / "a" / "run", "server.directory", LAYOUT, generate(START, LAYOUT), CONFIG):
            modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "a" / "run").iterdir()}
            assert (tmp_path / "a" / "run").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    assert set(modes) == {FILE, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-mark", "lock"}
    assert set(modes.values()) == {0o600}


def test_a_journal_that_others_can_read_is_tightened(
    killed: Path, known: Bits, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = fresh(killed, tmp_path / "open")
    for file in directory.iterdir():
        file.chmod(0o644)
    assert started(directory) == known
    assert {file.stat().st_mode & 0o777 for file in directory.iterdir()} == {0o600}
    assert "was readable by other users; now only its owner can read it" in caplog.text


def test_a_checksum_is_of_every_value() -> None:
    """No two that differ in a bit are alike, as a CRC promises."""
    facts: Facts = (1, 2, 3, 4.5, 0.5, 6, 1.0, None, 7)
    others: list[Facts] = [(2, *facts[1:]), (1, 3, *facts[2:]), (1, 2, 2, *facts[3:])]
    others += [(1, 2, 3, float(np.nextafter(4.5, 5)), 0.5, 6, 1.0, None, 7)]
    others += [(*facts[:6], 0.5, None, 7), (*facts[:6], 0.0, None, 7), (*facts[:7], b"why", 7)]
    without: Facts = (1, 2, 3, 4.5, None, 6, 1.0, None, 7)
    assert len({update_sum(0, each) for each in (facts, *others, without)} | {update_sum(1, facts)}) == 10
    assert update_sum(0, (1, 2, 3, 4.5, float("nan"), 6, 1.0, None, 7)) == update_sum(0, without)
    vectors = (b"ab", None), (b"a", b"b"), (b"ab", b"")
    assert len({vector_sum(1, 2, *one) for one in vectors}) == 3
