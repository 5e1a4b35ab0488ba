"""`edgeflock journal` and a server that does not start: what they print, and their exit codes."""

import json
from pathlib import Path

import pytest

from edgeflock.cli import main
from tests.library.command_line import edgeflock
from tests.server.pushes import Watched, tampered


def journal_of(directory: Path) -> Path:
    """Twelve updates."""
    run = Watched(directory)
    run.commit(12)
    run.engine.close()
    return directory / "journal.sqlite"


def called(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of `edgeflock ARGUMENTS`, in this process."""
    monkeypatch.setattr("sys.argv", ["edgeflock", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_verify_and_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = journal_of(tmp_path)
    assert called("journal", "verify", str(tmp_path), monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out == f"{path}: run run is whole, version 0 to 12\n"

    tampered(path, "UPDATE updates SET frame = x'00' WHERE version = 9")
    assert called("journal", "verify", str(path), monkeypatch=monkeypatch) == 1
    said = capsys.readouterr()
    assert "run run is damaged; acknowledged: version 12, whole: to 8\n" in said.out
    assert "  the record of the update that made version 9 has a wrong checksum\n" in said.out
    assert f"edgeflock journal repair {path} --to 8\n" in said.out
    assert said.err == ""

    assert called("journal", "repair", str(path), "--to", "9", monkeypatch=monkeypatch) == 2
    assert f"--to 9: {path} is intact from version 0 to 8" in capsys.readouterr().err
    assert called("journal", "repair", str(path), "--to", "8", monkeypatch=monkeypatch) == 0
    reported = capsys.readouterr().out
    assert f"{path}: kept to version 8, as run " in reported
    assert "Given up: versions 9 to 12. Devices had receipts" in reported
    assert "the old file still has 4, of " in reported
    assert called("journal", "verify", str(path), "--json", monkeypatch=monkeypatch) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["acknowledged"], found["damage"]) == (8, 8, [])
    assert found["repairs"] == [[8, 12, "run"]]


@pytest.mark.parametrize("place", ["nowhere", "."])
@pytest.mark.parametrize("words", [("verify",), ("repair", "--to", "3"), ("copy", "target")])
def test_a_place_without_a_run_is_told_with_what_to_name(
    words: tuple[str, ...],
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert called("journal", words[0], place, *words[1:], monkeypatch=monkeypatch) == 2
    path = "nowhere" if place == "nowhere" else "journal.sqlite"
    said = f"{path}: there is no such file; name a run's journal.sqlite, or its folder"
    assert said in capsys.readouterr().err


def test_repair_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = journal_of(tmp_path)
    assert called("journal", "repair", str(path), "--to", "12", "--json", monkeypatch=monkeypatch) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["version"], done["given_up"], done["updates"], done["before"]) == (12, 12, 0, "run")
    assert Path(done["backup"]).exists()


def test_a_path_that_is_no_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("journal", "verify", str(tmp_path), monkeypatch=monkeypatch) == 2
    assert "journal.sqlite: there is no such file" in capsys.readouterr().err
    (tmp_path / "journal.sqlite").write_bytes(b"no database" * 500)
    assert called("journal", "verify", str(tmp_path), monkeypatch=monkeypatch) == 1
    assert "is damaged, or no journal" in capsys.readouterr().err


def test_a_server_on_a_damaged_journal_ends_with_one_line(tmp_path: Path) -> None:
    directory = tmp_path / "edgeflock-run"
    directory.mkdir()
    path = journal_of(directory)
    tampered(path, "DELETE FROM updates WHERE version = 12")
    done = edgeflock("server", "--set", "server.port=0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line == (
        "edgeflock: edgeflock-run/journal.sqlite: it ends at version 11, and version 12 was acknowledged; "
        "to see what is whole: edgeflock journal verify edgeflock-run/journal.sqlite"
    )


def test_a_copy_and_what_databases_do_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    path, other = journal_of(tmp_path / "one"), tmp_path / "two" / "journal.sqlite"
    assert called("journal", "copy", str(tmp_path / "one"), f"sqlite:{other}", monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{other}: run run, version 12, ")
    assert f"rows, as they are in {path}\n" in said
    assert called("journal", "verify", str(other), monkeypatch=monkeypatch) == 0
    capsys.readouterr()
    assert called("journal", "copy", str(path), str(other), monkeypatch=monkeypatch) == 2
    assert "holds a run already, run; name another place" in capsys.readouterr().err
    database = "postgresql://127.0.0.1:1/runs"
    assert called("journal", "repair", database, "--to", "3", monkeypatch=monkeypatch) == 2
    assert "repair works on files of SQLite; restore a backup of a database" in capsys.readouterr().err


def test_a_standby_needs_a_journal_that_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", f"server.directory={tmp_path}", "--set", "model.module=arrays:none.npz"]
    assert called("server", "--standby", *settings, monkeypatch=monkeypatch) == 2
    assert "servers that stand by for each other share a database" in capsys.readouterr().err
