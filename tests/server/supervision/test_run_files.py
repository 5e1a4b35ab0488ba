"""The runs of a folder."""

from pathlib import Path

import pytest

from edgeflock.server.supervision.run_files import misnamed_files, run_files
from edgeflock.shared.errors import ConfigError


def test_files_and_folders_are_runs_and_the_servers_own_are_not(tmp_path: Path) -> None:
    for name in ("a.toml", "edgeflock.toml", "archive.toml", ".b.toml", "x y.toml", "notes.txt"):
        (tmp_path / name).write_text("")
    for name in ("a", "c", "archive"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.toml").write_text("")
    found = run_files(tmp_path)
    assert {name: file.path.relative_to(tmp_path) for name, file in found.items()} == {
        "a": Path("a.toml"),
        "c": Path("c/server.toml"),
    }
    assert found["a"].directory == tmp_path / "a"
    assert {path.name for path in misnamed_files(tmp_path)} == {"archive.toml", "x y.toml"}
    before = found["a"]
    (tmp_path / "a.toml").write_text("[server]\n")
    assert run_files(tmp_path)["a"] != before, "it has changed"


def test_what_the_server_decides_is_refused_in_a_run(tmp_path: Path) -> None:
    for text in ("port = 1", 'host = "0.0.0.0"', 'directory = "x"', 'certificate = "x"'):
        (tmp_path / "a.toml").write_text(f"[server]\n{text}\n")
        with pytest.raises(ConfigError, match=rf"server\.{text.split(' ')[0]} is decided for all runs"):
            run_files(tmp_path)["a"].settings()


def test_a_folder_that_is_gone_for_a_while_has_not_lost_its_runs(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        run_files(tmp_path / "away")
