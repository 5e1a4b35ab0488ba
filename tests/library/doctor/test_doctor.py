"""`edgeflock doctor` and `edgeflock report` as somebody calls them, of a device and of a server."""

import asyncio
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.cli import main
from edgeflock.client.identity import save_identity
from edgeflock.doctor import CheckResult
from edgeflock.doctor.report import HIDDEN, harmless_settings, read_audit, scrub, service_log, split_log
from edgeflock.shared.identity import Token, to_base64url
from edgeflock.shared.settings.config import parse
from tests.hosting import hosting
from tests.library.command_line import edgeflock


@pytest.fixture
def data(tmp_path: Path) -> str:
    x = np.zeros((20, 1, 8, 8), dtype=np.float32)
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=np.arange(20) % 10)
    return f"npz:{tmp_path / 'mine.npz'}"


def states(said: str) -> dict[str, str]:
    """check -> the worst of its findings."""
    found: dict[str, str] = {}
    for one in json.loads(said)["findings"]:
        worse = one["state"] if found.get(one["check"], "ok") == "ok" else found[one["check"]]
        found[one["check"]] = worse
    return found


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """`edgeflock ...` in a thread of this process, where every package can be loaded."""

    def fine(module: str, install: str) -> CheckResult:
        return CheckResult("package", "ok", module)

    monkeypatch.setattr("edgeflock.doctor.checks.check_package", fine)

    async def run(*words: str) -> tuple[object, str]:
        """(exit code, what it printed)."""
        monkeypatch.setattr("sys.argv", ["edgeflock", *words])
        with pytest.raises(SystemExit) as ended:
            await asyncio.to_thread(main)
        return ended.value.code, capsys.readouterr().out

    return run


async def test_a_device_from_well_to_revoked(command: Callable[..., Any], data: str, tmp_path: Path) -> None:
    place = tmp_path / "identity.json"
    words = ["--set", f"client.identity={place}", "--set", f"client.data={data}"]
    words += ["--set", f"client.directory={tmp_path}"]
    async with hosting(tmp_path / "run", closed=True, with_tls=True) as hosted:
        save_identity(hosted.enrol("pi-7"), place)
        _, said = await command("doctor", *words, "--json")
        found = states(said)
        assert {found[check] for check in ("python", "package", "modes", "server", "data")} == {"ok"}, found
        _, said = await command("doctor", *words[:2], *words[4:], "--json")
        assert states(said)["data"] == "warn"
        hosted.register.revoke("pi-7")
        code, said = await command("doctor", *words)
        assert code == 1
        assert "bad   server" in said
        assert "edgeflock client join URL TOKEN" in said
    place.chmod(0o644)
    (tmp_path / "mine.npz").unlink()
    code, said = await command("doctor", *words, "--json")
    assert code == 1
    found = states(said)
    assert {found[check] for check in ("modes", "identity", "data")} == {"bad"}


async def test_a_server_whose_journal_is_damaged(command: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with hosting(run):
        pass
    words = ["--server", "--set", f"server.directory={run}", "--set", "model.data="]
    _, said = await command("doctor", *words, "--json")
    assert states(said)["journal"] == "ok", said
    octets = bytearray((run / "journal.sqlite").read_bytes())
    octets[:16] = b"no database here"
    (run / "journal.sqlite").write_bytes(octets)
    code, said = await command("doctor", *words)
    assert code == 1
    assert "bad   journal" in said
    assert f"edgeflock journal verify {run}" in said


PLANTED = {
    "credential": "ef1.Y3JlZGVudGlhbC1vZi10aGlzLWRldmljZQ.",
    "viewer": Token.new().text,
    "broker": "hunter2hunter2",
    "broker-in-the-log": "of-another-broker",
    "variable": "wandb-0123456789",
    "query": "apikey=abcdef123456",
    "printed": "what-the-users-code-printed",
    "labelled": "a-label-that-nobody-knows",
}


async def test_a_report_holds_no_secret(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted in the settings, the identity, the environment, a run's directory, its audit and a log."""
    run, place, log = tmp_path / "run", tmp_path / "identity.json", tmp_path / "log"
    async with hosting(run, closed=True) as hosted:
        identity = hosted.enrol("pi-7")
    save_identity(identity, place)
    planted = {
        **PLANTED,
        "key": to_base64url(identity.key),
        "own": identity.credential,
        "new": Token.new().text,
    }
    (run / "admin-token").write_text(Token.new().text + "\n")
    planted["admin"] = (run / "admin-token").read_text().strip()
    noted = [{"label": planted["labelled"]}, {"did": f"made {planted['new']}"}]
    lines = (json.dumps({"time": 1.0, "who": "me", "did": "labelled", **more}) for more in noted)
    before = (run / "audit.jsonl").read_text() if (run / "audit.jsonl").exists() else ""
    (run / "audit.jsonl").write_text(before + "".join(f"{line}\n" for line in lines))
    monkeypatch.setenv("WANDB_API_KEY", planted["variable"])
    monkeypatch.setenv("EDGEFLOCK_TOKEN", planted["viewer"])
    settings = tmp_path / "edgeflock.toml"
    settings.write_text(
        f"""
        [server]
        directory = "{run}"
        [client]
        identity = "{place}"
        data = "mqtt://me:{planted["broker"]}@broker/topic?{planted["query"]}"
        """
    )
    moment = "2026-11-23T10:00:00.000+00:00"
    log.write_text(
        f"{moment} INFO edgeflock.client.transport.dialing: connected to https://192.0.2.1:8470, run 5f3c\n"
        f"{moment} WARNING edgeflock.client: with {planted['own']} and '{planted['credential']}', refused\n"
        f"{moment} INFO edgeflock.client: key {planted['key']} {planted['broker']} {planted['variable']}\n"
        f"{moment} INFO edgeflock.client: mqtt://me:{planted['broker-in-the-log']}@other:1883/t?a=b is away\n"
        f"On each device: edgeflock client join https://192.0.2.1:8470 {planted['viewer']}\n"
        f"{planted['printed']}\n"
        + json.dumps({"time": moment, "level": "info", "logger": "edgeflock.x", "message": planted["admin"]})
        + "\n"
    )
    file = tmp_path / "report.tar.gz"
    words = ["report", str(file), str(settings), "--log", str(log)]
    code, _ = await command(*words)
    assert code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        parts = {
            Path(member.name).name: taken.read().decode()
            for member in archive
            if (taken := archive.extractfile(member)) is not None
        }
    assert set(parts) == {
        *("doctor.json", "settings.json", "versions.json", "environment.json", "audit.json", "log.txt")
    }
    for name, part in parts.items():
        for what, secret in planted.items():
            assert secret not in part, f"{what} is in {name}"
            assert secret.split(".")[1 if "ef1." in secret else 0] not in part, f"{what} is in {name}"
    assert "connected to https://192.0.2.1:8470, run 5f3c" in parts["log.txt"]
    assert "mqtt://other:1883/t is away" in parts["log.txt"]
    assert "(2 other lines were left out)" in parts["log.txt"]
    assert json.loads(parts["settings.json"])["client"]["data"] == f"mqtt:{HIDDEN}"
    assert {one["check"] for one in json.loads(parts["doctor.json"])} >= {"python", "server", "data"}
    assert json.loads(parts["versions.json"])["packages"]["numpy"]
    assert "EDGEFLOCK_TOKEN" in json.loads(parts["environment.json"])
    assert json.loads(parts["audit.json"])[-2]["did"] == "labelled"
    done = await asyncio.to_thread(edgeflock, *words)
    assert done.returncode == 2, "what is there is not overwritten"
    assert f"{file}: there is such a file already; name another" in done.stderr


def test_of_the_settings_only_what_is_harmless() -> None:
    config = parse(
        overrides=[
            "client.token=ef1.abc.",
            "model.module=model:Net(secret=1)",
            "client.server=https://me:secret@192.0.2.1:8470",
            "coordination.rule=tau",
        ]
    )
    seen = harmless_settings(config)
    assert "secret" not in json.dumps(seen)
    assert seen["client"]["token"] == HIDDEN
    assert seen["client"]["server"] == "https://192.0.2.1:8470"
    assert seen["model"]["module"] == f"model:Net({HIDDEN})"
    assert seen["coordination"]["rule"] == "tau"
    assert seen["server"]["port"] == 8470


def test_the_longest_secret_goes_first() -> None:
    assert scrub("x secret-and-more y secret", {"secret", "secret-and-more"}) == f"x {HIDDEN} y {HIDDEN}"


def test_of_a_log_only_what_is_ours() -> None:
    ours = "2026-11-23T10:00:00.000+00:00 INFO edgeflock.client: connected"
    others = ["Traceback (most recent call last):", '{"time": 1, "logger": "root"}', "[]", "null", "12"]
    assert split_log([ours, *others]) == ([ours], len(others))
    assert read_audit(['{"time": 1, "who": "me", "did": "it", "more": 2}', '{"time": 1', "7"]) == [
        {"time": 1, "who": "me", "did": "it"}
    ]


def test_a_machine_without_systemd() -> None:
    def nothing(*command: object, **how: object) -> None:
        raise FileNotFoundError("journalctl")

    assert service_log("client", nothing) == []
