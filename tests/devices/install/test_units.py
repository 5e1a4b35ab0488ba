"""The systemd units: do they say what systemd understands, and how much of the machine do they leave open."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

INSTALL = Path(__file__).parents[3] / "devices" / "install"

MOST = 3.0
"""Of systemd's exposure, 0 to 10."""

pytestmark = [
    pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"),
    pytest.mark.parametrize("role", ["client", "server"]),
]


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True)


def test_systemd_understands_it(role: str, tmp_path: Path) -> None:
    """With a command that is there, as the real one is once it is installed."""
    text = (INSTALL / f"edgeflock-{role}.service").read_text()
    command = f"/opt/edgeflock/{role}/current/bin/edgeflock {role} /etc/edgeflock/{role}.toml"
    assert f"ExecStart={command}\n" in text
    unit = tmp_path / f"edgeflock-{role}.service"
    unit.write_text(text.replace(command, sys.executable))
    done = analyze("verify", "--man=no", "--recursive-errors=no", str(unit))
    assert done.returncode == 0, done.stderr
    assert unit.name not in done.stderr, done.stderr


def test_it_leaves_little_open(role: str) -> None:
    unit = INSTALL / f"edgeflock-{role}.service"
    done = analyze("security", "--offline=true", "--json=short", f"--threshold={MOST * 10:.0f}", str(unit))
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(one["json_field"] for one in json.loads(done.stdout))
