"""The folder of a server of several runs: what is wrong in it stops nothing else."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from edgeflock.client.run.several import choose_by_labels
from edgeflock.server.supervision import supervisor
from edgeflock.server.supervision.processes import PAUSED
from edgeflock.server.supervision.run_files import RunFile, run_files
from edgeflock.server.supervision.supervisor import Supervisor
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.settings.client import ClientSettings
from edgeflock.shared.settings.config import parse


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_the_folder_is_followed_after_any_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "_POLL_SECONDS", 0.01)
    failures = [RuntimeError("out of luck"), OSError("out of disk")]

    def fail_first(folder: Path) -> dict[str, RunFile]:
        if failures and any(folder.glob("*.toml")):
            raise failures.pop()
        return run_files(folder)

    monkeypatch.setattr(supervisor, "run_files", fail_first)
    runs = Supervisor(tmp_path, parse("[server]\nport = 0"))
    async with runs.serving():
        (tmp_path / "a.toml").write_text("[server]\nport = 1")  # which no process is started with
        await until(lambda: [run.state for run in runs.all_runs()] == ["failed"])
        (tmp_path / "a.toml").unlink()
        await until(lambda: not runs.all_runs())
    assert "OSError: out of disk" in caplog.text
    assert "out of luck" not in caplog.text, "one line a minute"


async def test_a_device_finds_an_open_run_that_does_not_run_yet(tmp_path: Path) -> None:
    for name, section in (
        ("a", "open = true\nlabels = ['site=north']"),
        ("b", "open = false"),
        ("c", "port = 1"),
    ):
        (tmp_path / f"{name}.toml").write_text(f"[server]\n{section}")
        (tmp_path / name).mkdir()
        (tmp_path / name / PAUSED).write_text("{}")
    runs = Supervisor(tmp_path, parse("[server]\nport = 0"))
    async with runs.serving():
        settings = ClientSettings(server=runs.url, labels=["site=north"])
        assert (await choose_by_labels(settings)).server.endswith("/v1/runs/a")
        with pytest.raises(ConfigError, match=r"none of them fits .*: a \(site=north\); name one"):
            await choose_by_labels(ClientSettings(server=runs.url))
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{runs.url}/v1/runs", headers={"Host": "evil.example"}) as answer,
        ):
            assert await answer.json() == {"runs": []}
        (tmp_path / "a.toml").write_text("[server]\nopen = false")
        run = runs.find("a")
        assert run is not None
        await until(lambda: run.config is not None and not run.config.server.open)
        with pytest.raises(ConfigError, match="none is open"):
            await choose_by_labels(settings)


async def test_a_folder_that_takes_no_tokens_is_an_error_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "identities.sqlite").mkdir()
    with pytest.raises(EdgeflockError, match="cannot keep the tokens of this server"):
        async with Supervisor(tmp_path, parse("[server]\nport = 0")).serving():
            pass


async def test_sockets_need_a_short_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (deep := tmp_path / ("d" * 100)).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(ConfigError, match="TMPDIR: .* is too long for Unix sockets"):
        async with Supervisor(tmp_path, parse("[server]\nport = 0")).serving():
            pass
    assert not list(deep.iterdir()), "nothing is left"
