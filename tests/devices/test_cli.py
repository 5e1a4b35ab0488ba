"""The command line: what it prints where, and with which exit code it ends."""

import fcntl
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from edgeflock.devices.quickstart import Plan
from edgeflock.devices.quickstart import _backend as backend_of


def edgeflock(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgeflock.devices", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_version_is_the_distribution_s() -> None:
    from importlib.metadata import version

    assert edgeflock("--version").stdout.strip() == version("edgeflock")


def test_config_prints_a_file_that_loads() -> None:
    printed = tomllib.loads(edgeflock("config").stdout)
    assert printed["coordination"]["rule"] == "adacomp"
    assert printed["compression"]["select"] == 0.01


WRONG = {
    "unknown key": (["--set", "run.prot=1"], ["run.prot", "'1'", "run.port"]),
    "wrong value": (["--set", "compression.values=int4"], ["compression.values", "'int4'", "'int8'"]),
    "no such module": (
        ["--set", "model.module=nowhere:Net"],
        ["model.module", "nowhere:Net", "ModuleNotFoundError"],
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
        ["--set", "run.local_steps=7000"],
        ["limits.samples = 65536", "run.local_steps = 7000", "run.batch = 10", "70000", "raise it"],
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
    file.write_text("[run]\nseed = 1\n\n[coordination]\nlerning_rate = 0.1\n")
    done = edgeflock("server", str(file))
    assert done.returncode == 2
    assert f"{file} line 5" in done.stderr
    assert "coordination.learning_rate" in done.stderr


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    done = edgeflock("client", str(tmp_path / "missing.toml"))
    assert done.returncode == 2
    assert "missing.toml" in done.stderr


def test_a_server_address_must_be_a_url() -> None:
    done = edgeflock("client", "--server", "192.0.2.1:8470", "--data", "digits:")
    assert done.returncode == 2
    assert "client.server" in done.stderr
    assert "http://" in done.stderr


def test_a_backend_must_be_a_known_one() -> None:
    done = edgeflock("client", "--backend", "tourch")
    assert done.returncode == 2
    assert "client.backend = 'tourch'" in done.stderr
    assert "did you mean 'torch'?" in done.stderr


def test_status_of_nothing_fails_in_one_line() -> None:
    done = edgeflock("status", "http://127.0.0.1:9", "--json")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "no answer from http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--clients", "2000"], "--clients 2000"),
        (["--data", "npz:nowhere.npz"], "no such file"),
        (["--rule", "adacmp"], "'adacomp'"),
        (["--select", "1.5"], "compression.select"),
        (["--model", "edgeflock.client.zoo:Missing"], "zoo:Missing"),
        (["--backend", "jax"], "--backend 'jax': must be auto, onnx, torch or mixed"),
    ],
    ids=["more clients than samples", "no data", "rule", "select", "model", "backend"],
)
def test_quickstart_refuses_what_cannot_work(arguments: list[str], named: str, tmp_path: Path) -> None:
    done = edgeflock("quickstart", "--json", *arguments, cwd=tmp_path)
    assert done.returncode != 0
    assert named in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    if "--model" not in arguments:  # a module can only be tried by the server process
        assert list(tmp_path.iterdir()) == []


def test_quickstart_trains_over_real_processes(tmp_path: Path) -> None:
    arguments = ["--clients", "2", "--updates", "900", "--select", "0.02", "--seed", "3"]
    done = edgeflock("quickstart", "--json", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    keys = "accuracy updates clients ingress_bytes dense_bytes reduction seconds model_path"
    assert set(result) == set(keys.split())
    assert result["updates"] == 900
    assert result["clients"] == 2
    assert result["accuracy"] > 0.8
    assert result["dense_bytes"] == 900 * 4 * 38_282
    assert result["reduction"] == pytest.approx(result["dense_bytes"] / result["ingress_bytes"], abs=0.1)
    assert result["reduction"] > 100

    from safetensors.numpy import load_file

    tensors = load_file(tmp_path / result["model_path"])
    assert sum(tensor.size for tensor in tensors.values()) == 38_282


def quickstart_plan(backend: str) -> Plan:
    return Plan("digits:", "", None, None, None, 4, backend, 0, 0, Path())


@pytest.mark.parametrize(
    ("backend", "each"),
    [
        ("auto", ["auto"] * 4),
        ("onnx", ["onnx"] * 4),
        ("torch", ["torch"] * 4),
        ("mixed", ["torch", "onnx", "torch", "onnx"]),
    ],
)
def test_what_the_clients_of_a_quickstart_train_with(backend: str, each: list[str]) -> None:
    assert [backend_of(quickstart_plan(backend), number) for number in range(1, 5)] == each


@pytest.mark.slow
def test_quickstart_without_torch_on_the_devices(tmp_path: Path) -> None:
    """The server exports the step, and real client processes train with it."""
    arguments = ["--clients", "2", "--updates", "900", "--select", "0.02", "--backend", "onnx"]
    done = edgeflock("quickstart", "--json", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["updates"] == 900
    assert result["accuracy"] > 0.8
    (run,) = (tmp_path / "edgeflock-quickstart").iterdir()
    logs = [(run / f"device-{number}.log").read_text() for number in (1, 2)]
    assert sum(int(log.split()[0]) for log in logs) == 900


def test_one_directory_has_one_server(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with (directory / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = edgeflock("server", "--set", f"run.directory={directory}", "--set", "run.port=0")
    assert done.returncode == 2
    assert str(directory) in done.stderr
    assert "another server" in done.stderr
