"""A server of several runs: real processes, which learn, die, hang and end without touching each other."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from edgeflock.api.client import Client
from edgeflock.shared.errors import EdgeflockError, Unauthorized
from tests.several_runs import Hosting, processes, several_runs

OPEN = "[server]\nopen = true\n[evaluation]\nevery = 0.5\n"
CNN = OPEN + 'accuracy = 0.85\n[model]\nmodule = "edgeflock.client.zoo:DigitsCNN"\n'
LINEAR = OPEN + 'accuracy = 0.85\n[model]\nmodule = "edgeflock.client.zoo:DigitsLinear"\n'
CLOSED = '[model]\nmodule = "edgeflock.client.zoo:DigitsLinear"\n'


async def train(hosting: Hosting, name: str, device: str) -> int:
    """How many updates a device has sent until the run was over."""
    return (await Client(hosting.address(name), data="digits:", name=device, backend="torch").run()).updates


@pytest.mark.slow
async def test_two_runs_learn_apart_from_each_other(tmp_path: Path) -> None:
    async with several_runs(tmp_path / "runs", cnn=CNN, linear=LINEAR) as hosting:
        for name in ("cnn", "linear"):
            await hosting.until_state(name, "running")
        updates = await asyncio.gather(
            *(train(hosting, name, device) for name in ("cnn", "linear") for device in ("pi-1", "pi-2"))
        )
        assert min(updates) > 0
        rows = {name: await hosting.until_state(name, "ended") for name in ("cnn", "linear")}
        assert all(row["accuracy"] >= 0.85 for row in rows.values())
        assert rows["cnn"]["model"] != rows["linear"]["model"]
        assert rows["cnn"]["version"] == sum(updates[:2])
        assert rows["linear"]["version"] == sum(updates[2:])
        assert {(tmp_path / "runs" / name / "journal.sqlite").exists() for name in rows} == {True}
    assert processes(str(tmp_path)) == {}, "none is left"


@pytest.mark.slow
async def test_a_killed_and_a_stopped_process_leave_the_other_session_unbroken(tmp_path: Path) -> None:
    async with several_runs(tmp_path / "runs", a=OPEN, b=OPEN) as hosting:
        for name in ("a", "b"):
            await hosting.until_state(name, "running")
        training = asyncio.create_task(train(hosting, "b", "pi"))
        await hosting.until("b", lambda row: (row["version"] or 0) > 0)
        first = hosting.child("a")
        os.kill(first, signal.SIGSTOP)
        assert "not answered" in (await hosting.until_state("a", "hangs"))["reason"]
        with pytest.raises(EdgeflockError, match="not available now"):
            await hosting.client("a").request("GET", "/v1/status")
        os.kill(first, signal.SIGCONT)
        await hosting.until_state("a", "running")
        os.kill(first, signal.SIGKILL)
        await hosting.until("a", lambda row: row["state"] != "running")
        assert "SIGKILL" in (await hosting.until("a", lambda row: "SIGKILL" in row["reason"]))["reason"]
        await hosting.until_state("a", "running")
        assert hosting.child("a") != first
        seen = (await hosting.rows())["b"]["version"]
        await hosting.until("b", lambda row: row["version"] > seen)
        status = await hosting.client("b").request("GET", "/v1/status")
        assert status["devices"][0]["connected"]
        joined = [device for device in status["devices"] if device["name"] == "pi"]
        assert len(joined) == 1
        training.cancel()
        await asyncio.wait([training])


@pytest.mark.slow
async def test_no_process_is_left_once_the_server_is_killed(tmp_path: Path) -> None:
    async with several_runs(tmp_path / "runs", a=OPEN, b=OPEN) as hosting:
        for name in ("a", "b"):
            await hosting.until_state(name, "running")
        assert len(hosting.children()) == 2
        hosting.process.kill()
        await hosting.process.wait()
        async with asyncio.timeout(60):
            while hosting.children():
                await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_tokens_open_their_own_run_and_no_other(tmp_path: Path) -> None:
    async with several_runs(tmp_path / "runs", a=CLOSED, b=CLOSED) as hosting:
        for name in ("a", "b"):
            await hosting.until_state(name, "running")
        of_a = (hosting.folder / "a" / "admin-token").read_text().strip()
        assert (await hosting.client("a", of_a).request("GET", "/v1/status"))["version"] == 0
        with pytest.raises(Unauthorized):
            await hosting.client("b", of_a).request("GET", "/v1/status")
        assert set(await hosting.rows(of_a)) == {"a"}, "a run's token shows that run"
        with pytest.raises(Unauthorized):
            await hosting.rows("of-nobody")
        assert await hosting.rows("") == {}, "no run is open"
        assert set(await hosting.rows()) == {"a", "b"}
        assert (await hosting.client("b").checkpoint()).startswith("a checkpoint"), (
            "its admin acts everywhere"
        )
