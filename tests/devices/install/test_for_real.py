"""install.sh with a real Python, pip and wheel, to the home of a user who is made up; it joins a real server.

Asks a package index, and takes minutes: only with `-m "network and long"`.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgeflock.client.identity import load_identity
from tests.hosting import hosting
from tests.wheel import built

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.network, pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


async def test_from_a_wheel_to_a_device_and_away(wheel: Path, tmp_path: Path) -> None:
    """Installed, joined, well according to doctor, upgraded with its credential, removed."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "bin" / "id").chmod(0o755)
    unset = ("PYTHONPATH", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
    environ = {name: value for name, value in os.environ.items() if name not in unset}
    environ |= {
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
    }

    async def install(*options: str, **more: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            ["sh", str(ROOT / "devices" / "install" / "install.sh"), *options],
            env={**environ, **more},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    edgeflock = tmp_path / ".local" / "bin" / "edgeflock"
    settings = tmp_path / ".config" / "edgeflock" / "client.toml"
    place = tmp_path / ".local" / "share" / "edgeflock" / "client" / "state" / "identity.json"
    data = tmp_path / "mine.csv"
    data.write_text("a,b,state\n1,2,on\n3,4,off\n")
    async with hosting(tmp_path / "run", closed=True, with_tls=True) as hosted:
        token = hosted.register.create("device").text
        joining = {"EDGEFLOCK_URL": hosted.url, "EDGEFLOCK_TOKEN": token}
        await install("--from", str(wheel), "--data", f"csv:{data}?label=state", **joining)
        name = load_identity(place).name
        doctor = [str(edgeflock), "doctor", str(settings)]
        done = await asyncio.to_thread(subprocess.run, doctor, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        for line in ("ok    server", "ok    data      2 samples", "ok    package   onnxruntime"):
            assert line in done.stdout
    assert "upgraded to" in await install("--from", str(wheel))
    assert load_identity(place).name == name
    await install("--uninstall", "--purge")
    assert not edgeflock.exists()
    assert not place.exists()
