"""examples/cartpole-fleet as its README says, with fewer updates."""

import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.documents.blocks import ROOT
from tests.library.command_line import edgeflock, running
from tests.ports import lasting

EXAMPLE = ROOT / "examples" / "cartpole-fleet"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A copy of the folder."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "cartpole-fleet"))


def test_on_real_sockets(here: Path) -> None:
    port, said = lasting(), here / "server.log"
    words = ["server", "edgeflock.toml", "--set", "server.open=true", "--set", f"server.port={port}"]
    with running(*words, "--set", "end.updates=40", cwd=here, said=said):
        while not (said.exists() and "To watch" in said.read_text()):
            time.sleep(0.05)
        with ThreadPoolExecutor(2) as threads:
            done = threads.map(
                lambda name: edgeflock(
                    *("client", "--server", f"http://127.0.0.1:{port}", "--name", name),
                    *("--data", "gym:CartPole-v1", "--set", "client.health=false"),
                    cwd=here,
                ),
                ("one", "two"),
            )
            assert [one.returncode for one in done] == [0, 0]
        until, status = time.monotonic() + 120, ""
        while not re.search(r"return \d", status) and time.monotonic() < until:  # it begins a process
            status = edgeflock("status", f"http://127.0.0.1:{port}", cwd=here).stdout
    assert "Version 40 of 40" in status
    assert re.search(r"return \d", status)


@pytest.mark.slow
def test_devices_that_differ(here: Path) -> None:
    fewer = "end.updates=24", "fleet.evaluate_every=24", "model.data=gym:poles:make?episodes=4"
    done = edgeflock("fleet", "fleet.toml", *(word for one in fewer for word in ("--set", one)), cwd=here)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_each_is_worth(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(here))
    from importlib import import_module

    compare = import_module("compare")
    for kind in compare.KINDS:
        assert 0 < compare.learned(["usual", "long"], 12, kind, 0) <= 500
