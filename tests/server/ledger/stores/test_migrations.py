"""Journals of older versions: migrated whole or not at all, and replayed to the bits that older code made."""

import re
import sqlite3
import tarfile
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.server.coordination.asynchronous import Asynchronous
from edgeflock.server.coordination.coordinator import Push
from edgeflock.server.database import SqliteDatabase
from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.descent.regime import Regime, StepMethod
from edgeflock.server.engine.engine import Engine
from edgeflock.server.ledger.backup import back_up, restore
from edgeflock.server.ledger.journal import Journal
from edgeflock.server.ledger.recovery import recover, replay
from edgeflock.server.ledger.repairing import repair
from edgeflock.server.ledger.stores.migrations import SCHEMA, STEPS, migrate
from edgeflock.server.ledger.verifying import verify
from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.errors import ConfigError, JournalDamaged, JournalTooNew
from edgeflock.shared.model.start import generate
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Receipt, Update
from edgeflock.shared.protocol.wire import level
from tests.data import JOURNALS, expected, unpacked
from tests.server.pushes import LAYOUT, THETA, commit

KNOWN = expected(JOURNALS)
every_journal = pytest.mark.parametrize("name", KNOWN)
OLDEST = "schema-1-first"
ADDED: dict[str, tuple[object, ...]] = {
    "meta": (None, ""),
    "snapshots": (None, None),
    "regimes": (0.0, 0, 0, "settings", ""),
    "updates": (1.0, None),
    "evaluations": ("",),
}
"""What rows from before the columns start and data, average and memory, average, base_batch, rounds, kind
and how, share and judged, and metrics, have there."""


def opened(name: str, directory: Path) -> Path:
    if (mark := JOURNALS / f"{name}.sqlite-mark.gz").exists():
        unpacked(mark, directory)
    return unpacked(JOURNALS / f"{name}.sqlite.gz", directory)


def regime_of(known: dict[str, Any]) -> Regime:
    """The regime of the last start; since schema 9 the journal's words for the optimizer are behind."""
    counts, how = known["regime"][:6], known["regime"][6:]
    return Regime(*counts, *map(StepMethod.from_text, how))


def digest(vector: NDArray[np.float32] | None) -> str | None:
    return None if vector is None else sha256(vector.tobytes()).hexdigest()


def found(parameters: Parameters) -> dict[str, Any]:
    return {
        "version": parameters.version,
        "theta": digest(parameters.theta),
        "average": digest(parameters.average),
    }


def rows(db: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Every table in the order that matters, without checksums."""
    found = {}
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [column for _, column, *_ in db.execute(f"PRAGMA table_info({table})")]
        told = ", ".join(column for column in columns if column not in ("sum", "chain"))
        found[table] = db.execute(f"SELECT {told} FROM {table} ORDER BY rowid").fetchall()
    return found


def content(path: Path) -> tuple[int, list[str], dict[str, list[tuple[object, ...]]]]:
    """(schema, tables and indices as they were made but for blanks, rows)."""
    with closing(sqlite3.connect(path)) as db:
        (schema,) = db.execute("PRAGMA user_version").fetchone()
        sql = db.execute("SELECT sql FROM sqlite_master WHERE sql NOTNULL ORDER BY name").fetchall()
        made = ["".join(text.replace('"', "").split()) for (text,) in sql]
        return schema, made, rows(db)


def _decoded(table: str, rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Those of updates with the fields of the frame, whichever order it has them in."""
    return [(*row[:6], _fields(row[6]), *row[7:]) for row in rows] if table == "updates" else rows


def _fields(frame: Any) -> list[object]:
    fields = msgpack.unpackb(frame)
    if isinstance(fields[4], int):  # tag, sequence, base, modes, count, indices, values, loss, samples, pull
        assert len(fields) == 11
        return [*fields[:3], *fields[5:8], level(fields[8]), fields[9], 0, *fields[3:5], None, fields[10]]
    usual = [0, sparse.GRID, values.CODINGS["scale"].mode, None, True]
    return [*fields, *usual[len(fields) - 8 :]]


def test_there_is_a_journal_of_every_schema() -> None:
    assert {known["schema"] for known in KNOWN.values()} == set(range(1, SCHEMA + 1))
    assert set(STEPS) == set(range(1, SCHEMA))


def test_what_reads_what_is_written_down() -> None:
    """Every number of a schema there is the first one's or today's, in the text and in the table."""
    said = (JOURNALS.parents[2] / "docs/how-to/backup-and-upgrade.md").read_text("utf-8")
    assert f"Today's is {SCHEMA}.\nSchemas 1 to {SCHEMA} are all there have been" in said
    section = said.partition("## What reads what")[2]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")]
    assert len(rows) == 7
    for what, reads in rows[1:]:  # below its head
        assert re.findall(r"\d+", reads) in (["1", str(SCHEMA)], [str(SCHEMA)]), what


def test_only_todays_journals_are_verified_repaired_and_backed_up(tmp_path: Path) -> None:
    """As the table says that says what reads what."""
    path = opened(f"schema-{SCHEMA - 1}", tmp_path)
    path = path.rename(path.with_name("journal.sqlite"))
    with pytest.raises(ConfigError, match=f"only {SCHEMA} is verified"):
        verify(path)
    with pytest.raises(ConfigError, match=f"holds no run of schema {SCHEMA}"):
        repair(path, 1, 0.0)
    with pytest.raises(ConfigError, match=str(SCHEMA)):
        back_up(tmp_path, tmp_path.with_name("backup"))


@every_journal
def test_a_migration_says_what_it_did_in_a_line(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, old = opened(name, tmp_path), KNOWN[name]["schema"]
    _, _, tables = content(path)
    rows = sum(map(len, tables.values()))
    with caplog.at_level("INFO"):
        for _ in range(2):  # the second one finds it migrated
            Journal(path).close()
    said = [record.getMessage() for record in caplog.records if "migrated" in record.getMessage()]
    words = (
        rf"{re.escape(str(path))}: migrated from journal schema {old} to {SCHEMA}: {rows:,} rows in [0-9.]+ s"
    )
    assert [re.fullmatch(words, one) is not None for one in said] == [True] * (old < SCHEMA), said


def test_the_same_run_came_to_the_same_bits_before_and_after_there_were_rooms() -> None:
    before, after = KNOWN["schema-4-last"], KNOWN["schema-5"]
    assert {key: before[key] for key in ("regime", "version", "theta", "average")} == {
        key: after[key] for key in ("regime", "version", "theta", "average")
    }


@every_journal
def test_an_old_journal_comes_to_the_bits_that_old_code_made(name: str, tmp_path: Path) -> None:
    path, known = opened(name, tmp_path), KNOWN[name]
    assert content(path)[0] == known["schema"]
    bits = {key: known[key] for key in ("version", "theta", "average")}
    for _ in range(2):  # the second one finds it migrated
        with closing(Journal(path)) as journal:
            run = journal.run()
            assert run is not None
            assert found(recover(journal, run.layout, regime_of(known))) == bits
            assert found(replay(journal, run.layout)) == bits


@every_journal
def test_migration_keeps_every_row_and_makes_todays_tables(name: str, tmp_path: Path) -> None:
    path = opened(name, tmp_path)
    _, _, before = content(path)
    Journal(path).close()
    fresh = tmp_path / "fresh.sqlite"
    journal = Journal(fresh)
    journal.begin_run("run", "package:Model", LAYOUT, THETA, 0.0)
    journal.close()
    schema, tables, after = content(path)
    assert (schema, tables) == content(fresh)[:2]
    for table, now in after.items():
        old = before.get(table, [])
        width = len(old[0]) if old else 0
        assert [row[:width] for row in _decoded(table, now)] == _decoded(table, old), table
        added = ADDED.get(table, ())
        assert all(row[width:] == added[len(added) - len(row[width:]) :] for row in now), table


@every_journal
def test_a_migrated_journal_goes_on(name: str, tmp_path: Path) -> None:
    """New updates, another regime at the same version, a loss that is no number: what old tables refused."""
    with closing(Journal(opened(name, tmp_path))) as journal:
        run = journal.run()
        assert run is not None
        regime = regime_of(KNOWN[name])
        for rate in (0.5, 0.25):
            parameters = recover(journal, run.layout, replace(regime, learning_rate=rate, rounds=False))
        engine = Engine(journal, run.layout, parameters, Asynchronous())
        device = engine.device_id("device-1")
        sequence, before = engine.receipts.last_sequence(device) + 1, engine.published.version
        (last,) = journal.updates(before - 1, before)
        update = wire.decode(last.frame)
        assert isinstance(update, Update)
        update = replace(update, sequence=sequence, base=before, loss=float("nan"), samples=1)
        answers = commit(engine, [Push(device, 1.0, update, wire.encode(update))])
        assert answers == [Receipt(sequence, before + 1, None)]
        assert found(replay(journal, run.layout)) == found(engine.parameters)


@every_journal
def test_a_backup_of_an_older_version_is_restored(name: str, tmp_path: Path) -> None:
    """As that version made it: the run's directory, packed."""
    (old := tmp_path / "old").mkdir()
    opened(name, old)
    with tarfile.open(tmp_path / "backup", "w:gz") as archive:
        for path in sorted(old.iterdir()):
            archive.add(path, path.name.replace(name, "journal"))
    for same in (True, False):
        restored = restore(tmp_path / "backup", directory := tmp_path / f"same-{same}", same_run=same)
        assert restored.version == KNOWN[name]["version"]
        with closing(Journal(directory / "journal.sqlite")) as journal:
            run = journal.run()
            assert run is not None
            assert found(replay(journal, run.layout))["theta"] == KNOWN[name]["theta"]


def test_a_first_model_that_was_made_from_a_seed_is_made_again(tmp_path: Path) -> None:
    """The generator is for ever: theta at version 0, as the code of then made it and today's does."""
    with closing(Journal(opened("schema-6", tmp_path))) as journal:
        run = journal.run()
        assert run is not None
        assert run.start is not None
        assert run.start.seed == 7
        assert generate(run.start, run.layout).tobytes() == journal.snapshot(first=True).theta.tobytes()
    with closing(Journal(opened("schema-5", tmp_path))) as journal:
        run = journal.run()
        assert run is not None
        assert run.start is None


STATEMENTS = [(schema, number) for schema, step in STEPS.items() for number in range(len(step) + 1)]


@pytest.mark.parametrize(("schema", "number"), STATEMENTS)
def test_a_migration_that_is_interrupted_leaves_the_old_journal(
    schema: int, number: int, tmp_path: Path
) -> None:
    """Before any of its statements, and after the last."""
    path = opened(OLDEST, tmp_path)
    before = content(path)
    broken = {**STEPS, schema: (*STEPS[schema][:number], "SELECT interrupted()")}

    def interrupted() -> None:
        raise KeyboardInterrupt

    with closing(SqliteDatabase(path)) as db:
        db.connection.create_function("interrupted", 0, interrupted)
        with pytest.raises(sqlite3.OperationalError, match="user-defined function raised"):
            migrate(db, broken)
        assert not db.connection.in_transaction
    assert content(path) == before
    Journal(path).close()
    assert content(path)[0] == SCHEMA


def test_killed_in_the_middle_of_a_migration(tmp_path: Path) -> None:
    """What lies on the disk while the transaction is open is the old journal."""
    path = opened(OLDEST, tmp_path)
    before = content(path)
    killed = tmp_path / "killed.sqlite"
    with closing(SqliteDatabase(path)) as db:
        db.connection.execute("PRAGMA cache_size = 1")  # pages go to the disk before the commit

        def kill() -> None:
            for suffix in ("", "-wal"):
                killed.with_name(killed.name + suffix).write_bytes(
                    path.with_name(path.name + suffix).read_bytes()
                )

        db.connection.create_function("kill", 0, kill)
        migrate(db, {**STEPS, SCHEMA - 1: (*STEPS[SCHEMA - 1], "SELECT kill()")})
    assert killed.with_name("killed.sqlite-wal").stat().st_size > 0
    assert content(killed) == before
    assert content(path)[0] == SCHEMA


@pytest.mark.parametrize("schema", [SCHEMA + 1, 99])
def test_a_journal_from_the_future_is_refused_and_left_alone(schema: int, tmp_path: Path) -> None:
    path = opened("schema-4", tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {schema}")
    before = path.read_bytes()
    with pytest.raises(JournalTooNew, match=f"has journal schema {schema} and .* up to {SCHEMA}.*upgrade"):
        Journal(path)
    assert path.read_bytes() == before


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE bookmarks (url)")
    before = path.read_bytes()
    with pytest.raises(JournalDamaged, match="is a database, but no journal"):
        Journal(path)
    assert path.read_bytes() == before


def test_a_schema_without_its_tables_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 1")
    with pytest.raises(JournalDamaged, match="no such table"):
        Journal(path)
