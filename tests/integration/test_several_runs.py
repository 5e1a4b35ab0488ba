"""A server of several runs: real processes, which learn, die, hang and end without touching each other."""

import asyncio
import fcntl
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from random import Random

import aiohttp
import pytest

from edgeflock.api.client import Client
from edgeflock.client.transport import Link, credentials
from edgeflock.inference.predicting import load
from edgeflock.server.identity import own_certificate
from edgeflock.shared.errors import ConfigError, EdgeflockError, Unauthorized
from edgeflock.shared.identity import tls_for
from edgeflock.shared.protocol.messages import PROTOCOL, Hello
from tests.library.operations.test_watching import run as edgeflock_output
from tests.several_runs import Hosting, processes, several_runs

OPEN = "[server]\nopen = true\n[evaluation]\nevery = 0.5\n"
CNN = OPEN + '[end]\naccuracy = 0.85\n[model]\nmodule = "edgeflock.client.zoo:DigitsCNN"\n'
LINEAR = OPEN + '[end]\naccuracy = 0.85\n[model]\nmodule = "edgeflock.client.zoo:DigitsLinear"\n'
LEARNED = 0.6
"""An evaluation of 0.85 ends these runs. Updates taken meanwhile may leave the last version below that."""
CLOSED = '[model]\nmodule = "edgeflock.client.zoo:DigitsLinear"\n'


@pytest.fixture(autouse=True)
def _devices_come_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeflock.client.transport.retrying.back_off", lambda _random: repeat(0.3))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB, which only root can mount."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place))
    if (mounted := subprocess.run(command, capture_output=True, text=True)).returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def train(hosting: Hosting, name: str, device: str) -> int:
    """How many updates a device has sent until the run was over."""
    return (await Client(hosting.address(name), data="digits:", name=device, backend="torch").run()).updates


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
        await hosting.until_reason("a", "SIGKILL")  # until it runs again
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
async def test_a_run_starts_once_the_process_that_has_its_folder_ends(tmp_path: Path) -> None:
    (folder := tmp_path / "runs" / "a").mkdir(parents=True)
    with open(folder / "lock", "w") as held:  # noqa: ASYNC230  # as a process that outlives a server
        fcntl.flock(held, fcntl.LOCK_EX)
        async with several_runs(tmp_path / "runs", a=OPEN) as hosting:
            row = await hosting.until_reason("a", "another server hosts it")
            assert row["state"] in ("restarting", "starting")
            fcntl.flock(held, fcntl.LOCK_UN)
            await hosting.until_state("a", "running")


@pytest.mark.slow
async def test_tokens_open_their_own_run_and_no_process_outlives_a_killed_server(tmp_path: Path) -> None:
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

        assert len(hosting.children()) == 2
        os.kill(hosting.child("a"), signal.SIGSTOP)
        hosting.process.kill()
        await hosting.process.wait()
        async with asyncio.timeout(60):
            while hosting.children():
                await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_runs_learn_apart_from_each_other_and_from_one_that_diverges(tmp_path: Path) -> None:
    wild = OPEN + (
        'recover = false\n[local]\noptimizer = "sgd"\n[coordination]\nlearning_rate = 100000\n'
        '[limits]\nparameter = 1e30\n[model]\nmodule = "edgeflock.client.zoo:DigitsCNN"\n'
    )
    learning = "cnn", "linear"
    async with several_runs(tmp_path / "runs", wild=wild, cnn=CNN, linear=LINEAR) as hosting:
        for name in ("wild", *learning):
            await hosting.until_state(name, "running")
        breaking = asyncio.create_task(train(hosting, "wild", "pi-3"))  # and then it waits for an operator
        updates = await asyncio.gather(
            *(train(hosting, name, device) for name in learning for device in ("pi-1", "pi-2"))
        )
        assert min(updates) > 0
        row = await hosting.until_state("wild", "failed")
        assert "has diverged" in row["reason"]
        breaking.cancel()
        await asyncio.wait([breaking])
        rows = {name: await hosting.until_state(name, "ended") for name in learning}
        assert all(row["accuracy"] > LEARNED for row in rows.values())
        assert rows["cnn"]["model"] != rows["linear"]["model"]
        assert rows["cnn"]["version"] == sum(updates[:2])
        assert rows["linear"]["version"] == sum(updates[2:])
        assert {(tmp_path / "runs" / name / "journal.sqlite").exists() for name in rows} == {True}
        shown = await edgeflock_output(
            "run", "list", hosting.url, "--token-file", hosting.folder / "admin-token"
        )
        lines = [line.split()[:2] for line in shown.splitlines()]
        assert lines[1:4] == [["cnn", "ended"], ["linear", "ended"], ["wild", "failed"]]
        assert f"wild: {row['reason']}" in shown
    assert processes(str(tmp_path)) == {}, "none is left"


@pytest.mark.slow
async def test_the_full_disk_of_one_run_leaves_the_other_alone(small_disk: Path, tmp_path: Path) -> None:
    place = tmp_path / "runs" / "full"
    place.parent.mkdir()
    place.symlink_to(small_disk)
    async with several_runs(tmp_path / "runs", full=OPEN, well=OPEN) as hosting:
        for name in ("full", "well"):
            await hosting.until_state(name, "running")
        training = [asyncio.create_task(train(hosting, name, "pi")) for name in ("full", "well")]
        await hosting.until("full", lambda row: (row["version"] or 0) > 0)
        disk = os.statvfs(place)
        (place / "filler").write_bytes(bytes(max(0, disk.f_bavail * disk.f_frsize - 100_000)))
        row = await hosting.until("full", lambda row: row["state"] in ("unavailable", "restarting"))
        assert row["reason"]
        seen = (await hosting.rows())["well"]["version"]
        await hosting.until("well", lambda row: row["version"] > seen + 5)
        (place / "filler").unlink()
        await hosting.until_state("full", "running")
        seen = (await hosting.rows())["full"]["version"]
        await hosting.until("full", lambda row: row["version"] > seen)
        for task in training:
            task.cancel()
        await asyncio.wait(training)


@pytest.mark.slow
async def test_a_run_is_paused_resumed_changed_and_archived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with several_runs(tmp_path / "runs", a=OPEN) as hosting:
        admin = ("--token-file", hosting.folder / "admin-token")
        await hosting.until_state("a", "running")
        training = asyncio.create_task(train(hosting, "a", "pi"))
        await hosting.until("a", lambda row: (row["version"] or 0) > 0)

        said = await edgeflock_output("run", "pause", hosting.url, "a", *admin)
        assert said == "run a is paused; its devices come back once it is resumed\n"
        paused = (await hosting.rows())["a"]
        assert (paused["state"], paused["version"] > 0) == ("paused", True)
        assert hosting.children() == {}
        with pytest.raises(AssertionError, match="run a is paused: resume it"):
            await edgeflock_output("run", "archive", hosting.url, "a", *admin)
        while "takes no devices now: run a is paused by an operator" not in caplog.text:
            await asyncio.sleep(0.1)  # the device, in one line
        await edgeflock_output("run", "resume", hosting.url, "a", *admin)
        await hosting.until("a", lambda row: (row["version"] or 0) > paused["version"])
        training.cancel()
        await asyncio.wait([training])

        (hosting.folder / "b.toml").write_text(CLOSED)
        await hosting.until_state("b", "running")
        first = hosting.child("b")
        for wrong in ("server.port = 1", "coordination.mode = 'nine'"):
            (hosting.folder / "b.toml").write_text(wrong)
            row = await hosting.until_reason("b", wrong.split()[0])
            assert (row["state"], hosting.child("b")) == ("running", first), "wrong settings change nothing"
        (hosting.folder / "b.toml").write_text(CLOSED + "\n")
        await hosting.until(
            "b", lambda row: row["state"] == "running" and hosting.child("b") not in (0, first)
        )

        said = await edgeflock_output("run", "archive", hosting.url, "a", *admin)
        place = hosting.folder / "archive" / "a"
        assert str(place / "model.safetensors") in said
        assert set(await hosting.rows()) == {"b"}
        assert load(place / "model.safetensors").version >= paused["version"]
        assert (place / "server.toml").read_text() == OPEN
        assert (place / "journal.sqlite").exists()
        with pytest.raises(EdgeflockError, match="no run 'a'"):
            await hosting.client("a").request("GET", "/v1/status")


@pytest.mark.slow
async def test_a_device_trains_for_the_runs_it_names_or_the_one_for_its_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    north = LINEAR.replace("[server]", '[server]\nlabels = ["site=north"]')
    south = CLOSED.replace("[model]", '[server]\nlabels = ["site=south"]\n[end]\nupdates = 20\n[model]')
    async with several_runs(tmp_path / "runs", north=north, south=south, plain=CNN) as hosting:
        for name in ("north", "south", "plain"):
            await hosting.until_state(name, "running")
        common = {"data": "digits:", "backend": "torch"}

        with pytest.raises(
            ConfigError, match=r"none of them fits this device's labels \(site=west\)"
        ) as raised:
            await Client(hosting.url, **common, labels=["site=west"]).run()
        assert "north (site=north), plain (no labels)" in str(raised.value), "the closed one is not shown"

        done = await Client(hosting.url, **common, name="pi-1", labels=["site=north", "kind=pi"]).run()
        assert done.updates > 0
        assert (await hosting.until_state("north", "ended"))["version"] == done.updates
        assert (await hosting.rows())["plain"]["version"] == 0

        of_south = (hosting.folder / "south" / "admin-token").read_text().strip()
        created = await edgeflock_output("token", "create", hosting.folder / "south", "--json")
        joined = await edgeflock_output(
            "client", "join", hosting.address("south"), json.loads(created)["token"], "--name", "pi-2"
        )
        assert joined == ""
        assert (tmp_path / "config" / "edgeflock" / "identity-south.json").exists()
        both = Client(hosting.url, **common, name="", runs=["south", "plain"], cpu="150%")
        await both.run()
        await hosting.until_state("plain", "ended")
        assert (await hosting.until_state("south", "ended"))["version"] == 20
        devices = (await hosting.client("south", of_south).request("GET", "/v1/status"))["devices"]
        assert [device["name"] for device in devices] == ["pi-2"]


async def _last_of(frames: AsyncIterator[bytes]) -> None:
    """Returns or raises once they end."""
    async with asyncio.timeout(60):
        async for _ in frames:
            pass


@pytest.mark.slow
async def test_over_tls_runs_know_certificates_logins_and_revoked_tokens(tmp_path: Path) -> None:
    """TLS ends before the run is known. Yet the run decides about certificates and other sites' pages."""
    (tmp_path / "tls").mkdir()
    own = own_certificate(tmp_path / "tls", "127.0.0.1")
    settings = f"server.certificate={own.certificate}", f"server.key={own.key}"
    demanding = f'[server]\nclient_certificates = "devices"\n{CLOSED}'
    async with several_runs(tmp_path / "runs", *settings, a=demanding) as hosting:
        await hosting.until_state("a", "running")
        created = await edgeflock_output("token", "create", hosting.folder / "a", "--json")
        identity = await credentials.join(hosting.address("a"), json.loads(created)["token"], "pi")
        assert identity.certificate
        hello = Hello(PROTOCOL, "pi", b"", {})
        async with Link(hosting.address("a"), identity, hello, Random(0)) as device:
            assert (await device.join()).version == 0
        with pytest.raises(ConfigError, match="answers 403"):
            async with Link(
                hosting.address("a"), replace(identity, certificate=""), hello, Random(0)
            ) as device:
                await device.join()

        connector = aiohttp.TCPConnector(ssl=tls_for("https", "127.0.0.1", identity.pin, insecure=False))
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as http:
            own_page, other_page = {"Origin": hosting.url}, {"Origin": "https://evil.example"}

            async def status(
                method: str, path: str, headers: dict[str, str] | None = None, **body: object
            ) -> int:
                url = f"{hosting.url}{path}"
                async with http.request(method, url, headers=headers, json=body or None) as answer:
                    return answer.status

            assert await status("GET", "/v1/runs/a/v1/status") == 401
            assert await status("POST", "/v1/login", other_page, token=hosting.token) == 403
            assert await status("POST", "/v1/login", own_page, token="guess") == 401
            assert await status("POST", "/v1/login", own_page, token=hosting.token) == 200
            assert await status("GET", "/v1/runs/a/v1/status") == 200
            for path in ("/v1/runs/a/v1/checkpoint", "/v1/runs/a/pause"):
                assert await status("POST", path) == 403, "a login without an origin"
                assert await status("POST", path, other_page) == 403
            assert await status("POST", "/v1/runs/a/v1/checkpoint", own_page) == 200
            async with http.get(f"{hosting.url}/v1/runs/a") as page:
                assert page.url.path == "/v1/runs/a/"
                assert 'src="assets/main.js"' in await page.text()
            assert await status("GET", "/v1/runs/a/assets/main.js") == 200
            async with http.get(f"{hosting.url}/") as page:
                assert 'src="assets/runs.js"' in await page.text()

        made = json.loads(
            await edgeflock_output("token", "create", hosting.folder, "--role", "viewer", "--json")
        )
        frames = hosting.client("a", made["token"]).frames()
        assert await anext(frames)
        with pytest.raises(EdgeflockError, match="needs a token of the role admin"):
            await hosting.client("a", made["token"]).checkpoint()
        with pytest.raises(EdgeflockError, match="role admin"):
            await hosting.client(token=made["token"]).request("POST", "/v1/runs/a/pause", {})
        metrics = hosting.client(token=made["token"]).send("GET", "/metrics")
        async with metrics as answer:
            assert 'edgeflock_version{run="a"} 0.0' in await answer.text()
        listed = await edgeflock_output("token", "list", hosting.folder, "--json")
        (id_,) = (one["id"] for one in json.loads(listed)["tokens"] if one["role"] == "viewer")
        await edgeflock_output("token", "revoke", id_, hosting.folder)
        with pytest.raises(EdgeflockError, match=r"lost|ended"):
            await _last_of(frames)
