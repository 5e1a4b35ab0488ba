"""Journals of this schema replay to the bits that older code made. Those of other schemas are refused."""

import re
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeflock.operations.top import open_recording
from edgeflock.server.descent.parameters import Parameters
from edgeflock.server.descent.regime import Regime, StepMethod
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.stores.schema import SCHEMA
from edgeflock.server.ledger.backup import back_up, restore
from edgeflock.server.ledger.recovery import recover, replay
from edgeflock.server.ledger.repairing import repair
from edgeflock.server.ledger.verifying import verify
from edgeflock.shared.errors import ConfigError, JournalDamaged, JournalTooNew
from edgeflock.shared.model.start import generate
from tests.data import JOURNALS, expected, unpacked
from tests.server.pushes import open_engine

NAME = f"schema-{SCHEMA}"
KNOWN = expected(JOURNALS)[NAME]


def opened(directory: Path) -> Path:
    unpacked(JOURNALS / f"{NAME}.sqlite-mark.gz", directory)
    return unpacked(JOURNALS / f"{NAME}.sqlite.gz", directory)


def digest(vector: NDArray[np.float32] | None) -> str | None:
    return None if vector is None else sha256(vector.tobytes()).hexdigest()


def found(parameters: Parameters) -> dict[str, Any]:
    return {
        "version": parameters.version,
        "theta": digest(parameters.theta),
        "average": digest(parameters.average),
    }


def test_a_journal_comes_to_the_bits_that_older_code_made(tmp_path: Path) -> None:
    with closing(Journal(opened(tmp_path))) as journal:
        run = journal.run()
        assert run is not None
        *counts, method = KNOWN["regime"]
        regime = replace(Regime(*counts), method=StepMethod.from_text(method))
        bits = {key: KNOWN[key] for key in ("version", "theta", "average")}
        assert found(recover(journal, run.layout, regime)) == bits
        assert found(replay(journal, run.layout)) == bits


def test_a_first_model_that_was_made_from_a_seed_is_made_again(tmp_path: Path) -> None:
    """The generator is for ever: theta at version 0, as the code of then made it and today's does."""
    with closing(Journal(opened(tmp_path))) as journal:
        run = journal.run()
        assert run is not None
        assert run.start is not None
        assert run.start.seed == 7
        assert generate(run.start, run.layout).tobytes() == journal.snapshot(first=True).theta.tobytes()


def test_what_reads_what_is_written_down() -> None:
    said = (JOURNALS.parents[2] / "docs/how-to/backup-and-upgrade.md").read_text("utf-8")
    assert f"Today's is {SCHEMA}, and this version reads no other" in said
    assert f"older code of schema {SCHEMA} wrote" in said


def of_schema(schema: int, directory: Path) -> Path:
    """A journal that says that it is of the schema."""
    directory.mkdir()
    journal, _ = open_engine(directory)
    journal.close()
    path = directory / "journal.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {schema}")
    return path


READERS: dict[str, Callable[[Path], object]] = {
    "server": Journal,
    "verify": verify,
    "repair": lambda path: repair(path, 0, 0.0),
    "backup": lambda path: back_up(path.parent, path.parent.with_name("backup")),
    "replay": open_recording,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("schema", [1, SCHEMA - 1])
def test_an_older_journal_is_refused_and_left_alone(schema: int, reader: str, tmp_path: Path) -> None:
    path = of_schema(schema, tmp_path / "run")
    before = path.read_bytes()
    said = (
        f"{path} has journal schema {schema} and this Edgeflock reads {SCHEMA} only; open it with the "
        "Edgeflock that wrote it, or begin a run in another directory or database"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        READERS[reader](path)
    assert path.read_bytes() == before
    assert not (tmp_path / "backup").exists()


def test_an_older_backup_is_refused_by_its_name(tmp_path: Path) -> None:
    path = of_schema(SCHEMA - 1, tmp_path / "run")
    with tarfile.open(tmp_path / "backup", "w:gz") as archive:
        for file in (path, path.with_name("journal.sqlite-mark")):
            archive.add(file, file.name)
    with pytest.raises(ConfigError, match=rf"backup: .* has journal schema {SCHEMA - 1} and .* wrote it"):
        restore(tmp_path / "backup", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("schema", [SCHEMA + 1, 99])
def test_a_journal_from_the_future_is_refused_and_left_alone(schema: int, tmp_path: Path) -> None:
    path = of_schema(schema, tmp_path / "run")
    before = path.read_bytes()
    with pytest.raises(JournalTooNew, match=f"has journal schema {schema} and .* {SCHEMA} only.*upgrade"):
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
        db.execute(f"PRAGMA user_version = {SCHEMA}")
    with pytest.raises(JournalDamaged, match="no such table"):
        Journal(path)
