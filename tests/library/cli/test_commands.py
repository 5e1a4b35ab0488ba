"""The command line: what it prints where, and with which exit code it ends."""

import fcntl
import signal
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edgeflock.shared.identity import Token
from tests.library.command_line import edgeflock


def test_version_is_the_distribution_s() -> None:
    from importlib.metadata import version

    assert edgeflock("--version").stdout.strip() == version("edgeflock")


def test_config_prints_a_file_that_loads() -> None:
    text = edgeflock("config").stdout
    assert set(tomllib.loads(text)) >= {"server", "coordination", "compression"}
    assert '\n# rule = "adacomp"  # how staleness' in text
    assert '\n# indices = "grid"  # coding of the positions' in text


@pytest.mark.slow
def test_the_line_that_lets_devices_join_is_a_command_alone(tmp_path: Path) -> None:
    """Its token may end with a dot, which must not seem to be that of a sentence."""
    command = [sys.executable, "-m", "edgeflock", "server", "--set", "server.port=0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        assert server.stderr is not None
        printed = next(line for line in server.stderr if "client join" in line)
        server.send_signal(signal.SIGTERM)
        server.stderr.read()
    *words, address, token = printed.split()
    assert words == ["edgeflock", "client", "join"]
    assert (urlsplit(address).hostname, Token.parse(token).text) == ("127.0.0.1", token)


WRONG = {
    "unknown key": (["--set", "run.prot=1"], ["run.prot", "'1'", "server.port"]),
    "wrong value": (["--set", "compression.values=int4"], ["compression.values", "'int4'", "'int8'"]),
    "no such module": (
        ["--set", "model.module=nowhere:Net"],
        ["model.module", "nowhere:Net", "ModuleNotFoundError", "searched in the folder of the settings"],
    ),
    "no such data": (["--set", "model.data=npz:nowhere.npz"], ["npz:nowhere.npz", "no such file"]),
    "model and data do not fit": (
        ["--set", "model.module=edgeflock.client.zoo:PaperCNN"],
        ["edgeflock.client.zoo:PaperCNN", "digits:", "does not fit"],
    ),
    "frame too small for the model": (
        ["--set", "compression.select=1", "--set", "limits.frame_bytes=2048"],
        ["limits.frame_bytes", "2048", "38282", "raise it"],
    ),
    "frame too small for a whole gradient": (
        ["--set", "compression.threshold=0.5", "--set", "limits.frame_bytes=100000"],
        ["limits.frame_bytes", "100000", "38282", "threshold = 0.5", "raise it"],
    ),
    "more samples than an update may have": (
        ["--set", "local.steps=7000"],
        ["limits.samples = 65536", "local.steps = 7000", "local.batch = 10", "70000", "raise it"],
    ),
}


@pytest.mark.parametrize(("arguments", "named"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_setting_is_named_and_nothing_starts(
    arguments: list[str], named: list[str], tmp_path: Path
) -> None:
    done = edgeflock("server", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in named:
        assert part in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[model]\nseed = 1\n\n[coordination]\nlerning_rate = 0.1\n")
    done = edgeflock("server", str(file))
    assert done.returncode == 2
    assert f"{file} line 5" in done.stderr
    assert "coordination.learning_rate" in done.stderr


@pytest.mark.parametrize(
    ("path", "remedy"), [("missing.toml", "correct the path"), ("http://127.0.0.1:1", "after --server")]
)
def test_an_unreadable_file_is_named(path: str, remedy: str, tmp_path: Path) -> None:
    done = edgeflock("client", path, cwd=tmp_path)
    assert done.returncode == 2
    assert path.partition("//")[0] in done.stderr
    assert remedy in done.stderr


def test_a_server_address_must_be_a_url() -> None:
    done = edgeflock("client", "--server", "192.0.2.1:8470", "--data", "digits:")
    assert done.returncode == 2
    assert "client.server" in done.stderr
    assert "https://" in done.stderr


def test_a_backend_must_be_a_known_one() -> None:
    done = edgeflock("client", "--backend", "tourch")
    assert done.returncode == 2
    assert "client.backend = 'tourch'" in done.stderr
    assert "did you mean 'torch'?" in done.stderr


def test_status_of_nothing_fails_in_one_line() -> None:
    done = edgeflock("status", "http://127.0.0.1:9", "--json")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "nothing listens at http://127.0.0.1:9: start the server, or correct the address" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_directory_has_one_server(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with (directory / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = edgeflock("server", "--set", f"server.directory={directory}", "--set", "server.port=0")
    assert done.returncode == 1
    assert str(directory) in done.stderr
    assert "another server" in done.stderr


@pytest.mark.parametrize(
    ("octets", "named"), [(b"no database" * 500, "is damaged, or no journal"), (None, "upgrade")]
)
def test_a_journal_that_cannot_serve_ends_the_server_with_one_line(
    tmp_path: Path, octets: bytes | None, named: str
) -> None:
    """It is no wrong setting: nothing that the user wrote could mend it."""
    journal = tmp_path / "edgeflock-run" / "journal.sqlite"
    journal.parent.mkdir()
    if octets is not None:
        journal.write_bytes(octets)
    else:
        with closing(sqlite3.connect(journal)) as db:
            db.execute("PRAGMA user_version = 99")
    done = edgeflock("server", "--set", "server.port=0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("edgeflock: edgeflock-run/journal.sqlite ")
    assert named in line
