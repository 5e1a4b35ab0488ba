"""`edgeflock backup` and `edgeflock restore`: what they print, and their exit codes."""

import json
from pathlib import Path

import pytest

from tests.library.cli.test_journal import called, journal_of


def test_backup_and_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file, fresh = tmp_path / "run", tmp_path / "monday.backup", tmp_path / "fresh"
    (run / "tensorboard").mkdir(parents=True)
    journal_of(run)
    assert called("backup", str(run), str(file), monkeypatch=monkeypatch) == 0
    size = f"{file.stat().st_size:,}"
    assert capsys.readouterr().out == (
        f"{file}: run run, version 0 to 12, {size} bytes; keep it secret\nNot in it: tensorboard\n"
    )
    assert called("backup", str(run), str(file), monkeypatch=monkeypatch) == 2
    assert f"{file}: there is such a file already; name another" in capsys.readouterr().err
    assert called("restore", str(file), str(fresh), "--same-run", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out == (
        f"{fresh}: version 12, as run run; start its server: --set server.directory={fresh}\n"
    )
    assert called("restore", str(file), str(fresh), monkeypatch=monkeypatch) == 2
    assert f"{fresh} is not empty; restore into a new directory" in capsys.readouterr().err
    assert called("restore", str(file), str(tmp_path / "b"), "--json", monkeypatch=monkeypatch) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["version"], reported["run"] != "run") == (12, True)
