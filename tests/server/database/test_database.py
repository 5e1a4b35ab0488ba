"""What SQLite and PostgreSQL have in common: the same statements, values, transactions and errors."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edgeflock.server.database import (
    Database,
    JournalLost,
    PostgresDatabase,
    PostgresReader,
    SqliteDatabase,
    Tables,
    Unreachable,
    is_transient,
)
from edgeflock.shared.errors import ConfigError, JournalDamaged
from tests.postgres import Cluster

THINGS = 'rowid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, "window" REAL, octets BLOB, many INTEGER'
TABLES: Tables = {"things": THINGS}


@pytest.fixture(params=["sqlite", "postgresql"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Database, Database]]:
    """A new database, and another view of it that sees what is committed."""

    def opened() -> Database:
        return SqliteDatabase(tmp_path / "things.sqlite") if url is None else PostgresDatabase(url, "test")

    url = request.getfixturevalue("postgres").fresh() if request.param == "postgresql" else None
    with closing(opened()) as one, closing(opened()) as other:
        one.create(TABLES, 0)
        one.commit()
        yield one, other


def names(database: Database) -> list[str]:
    return [name for (name,) in database.rows("SELECT name FROM things ORDER BY rowid")]


def test_values_come_back_as_every_database_stores_them(both: tuple[Database, Database]) -> None:
    one, other = both
    rows = [(1, "a", float("nan"), b"\0\xff", 1 << 62), (2, "\u00fc", 0.1, None, None)]
    one.insert("things", THINGS, rows)
    third = 'INSERT INTO things (rowid, name, "window", octets, many) VALUES (3, ?, ?, ?, ?)'
    one.write(third, "c", -0.0, b"", True)
    one.commit()
    found = list(other.rows('SELECT rowid, name, "window", octets, many FROM things ORDER BY rowid'))
    assert found == [
        (1, "a", None, b"\0\xff", 1 << 62),
        (2, "\u00fc", 0.1, None, None),
        (3, "c", 0.0, b"", 1),
    ]
    assert str(found[2][2]) == "0.0"
    assert list(other.stream("SELECT name FROM things WHERE many >= ? ORDER BY rowid", 1)) == [("a",), ("c",)]
    assert other.row("SELECT name FROM things WHERE many = ?", 7) is None


def test_a_transaction_is_seen_at_its_end_or_never(both: tuple[Database, Database]) -> None:
    one, other = both
    one.write("INSERT INTO things (rowid, name) VALUES (1, ?)", "kept")
    assert names(one) == ["kept"]
    assert names(other) == []
    one.commit()
    assert names(other) == ["kept"]
    one.write("DELETE FROM things")
    one.rollback()
    one.rollback()
    assert names(one) == ["kept"]
    one.create(TABLES, 0)  # what is there stays
    one.commit()
    assert names(other) == ["kept"]


def test_a_table_that_is_missing_is_damage(both: tuple[Database, Database]) -> None:
    one, _ = both
    with pytest.raises(JournalDamaged, match="nowhere"):
        list(one.rows("SELECT 1 FROM nowhere"))
    with pytest.raises(JournalDamaged, match="nowhere"):
        one.write("INSERT INTO nowhere VALUES (1)")
    one.rollback()
    assert names(one) == []


def test_a_row_that_is_there_already_is_no_damage(both: tuple[Database, Database]) -> None:
    one, _ = both
    one.insert("things", THINGS, [(1, "a", None, None, None)])
    with pytest.raises((sqlite3.IntegrityError, JournalLost)) as failure:
        one.insert("things", THINGS, [(2, "a", None, None, None)])
    assert not isinstance(failure.value, JournalDamaged)


def test_a_reader_sees_one_moment_and_changes_nothing(postgres: Cluster, tmp_path: Path) -> None:
    path, url = tmp_path / "things.sqlite", postgres.fresh()
    for one in (SqliteDatabase(path), PostgresDatabase(url, "test")):
        with closing(one):
            one.create(TABLES, 0)
            one.insert("things", THINGS, [(1, "first", None, None, None)])
            one.commit()
            reader = SqliteDatabase(path, read_only=True) if one.path == path else PostgresReader(url)
            with closing(reader):
                assert names(reader) == ["first"]
                one.insert("things", THINGS, [(2, "second", None, None, None)])
                one.commit()
                assert names(reader) == ["first"]
                assert list(reader.stream("SELECT name FROM things")) == [("first",)]
                with pytest.raises((sqlite3.OperationalError, JournalLost), match="read-?only"):
                    reader.write("DELETE FROM things")
            assert names(one) == ["first", "second"]


def test_a_file_knows_its_schema_and_whose_it_is(tmp_path: Path) -> None:
    with closing(SqliteDatabase(tmp_path / "own.sqlite")) as own:
        assert own.schema() == 0
        own.create(TABLES, 7)
        own.commit()
        assert own.schema() == 7
    with closing(SqliteDatabase(tmp_path / "other.sqlite")) as other:
        other.connection.execute("CREATE TABLE bookmarks (url)")
        assert other.schema() == -1


def caused(cause: BaseException) -> Exception:
    error = ConfigError("it cannot hold a run")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (JournalLost("gone"), True),
        (Unreachable("not there"), True),
        (sqlite3.OperationalError("database is locked"), True),
        (OSError(errno.ENOSPC, "no space"), True),
        (caused(OSError(errno.EIO, "the disk failed")), True),
        (caused(JournalLost("gone")), True),
        (OSError(errno.EACCES, "not allowed"), False),
        (sqlite3.IntegrityError("twice"), False),
        (JournalDamaged("a checksum"), False),
        (caused(ValueError()), False),
        (None, False),
    ],
)
def test_what_may_pass_by_itself(error: BaseException | None, passes: bool) -> None:
    assert is_transient(error) is passes


def test_a_missing_table_does_not_pass_by_itself(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "empty.sqlite")) as db:
        with pytest.raises(sqlite3.OperationalError) as failure:
            db.execute("SELECT 1 FROM nowhere")
    assert not is_transient(failure.value)
