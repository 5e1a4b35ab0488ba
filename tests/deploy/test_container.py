"""The server's container, where nothing can run one: its files are linted, and its steps run without it."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.documents.test_parsed import parsed
from tests.hosting import hosting

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """(FROM, what follows it), ... with continued lines joined and comments gone."""
    lines = "\n".join(line for line in dockerfile.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", lines)
    parts = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [(name, re.sub(r"\s+", " ", rest)) for name, rest in parts]


HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for name, rest in instructions((DEPLOY / "Dockerfile").read_text()):
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest))
    return found


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
def test_hadolint() -> None:
    assert HADOLINT is not None
    done = subprocess.run([HADOLINT, str(DEPLOY / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_last_stage_builds_nothing_and_is_nobody_s_root() -> None:
    build, last = stages()
    assert all(re.match(r"python:3\.\d+-slim-\w+( AS build)?$", stage[0][1]) for stage in (build, last))
    assert build[0][1].removesuffix(" AS build") == last[0][1], (
        "an environment moves between like systems only"
    )
    said = dict(last)
    assert said["USER"] == "10001"
    assert json.loads(said["ENTRYPOINT"]) == ["edgeflock", "server"]
    assert "health.py" in said["HEALTHCHECK"]
    runs = " ".join(rest for name, rest in last if name == "RUN")
    assert not re.search(r"\b(pip|apt|apt-get|gcc|make|curl)\b", runs)
    assert "--no-cache-dir" in " ".join(rest for name, rest in build if name == "RUN")


def test_what_is_copied_is_there_and_no_more() -> None:
    """An allow-list: a run's folder, or a key, beside the sources gets into no image."""
    first, *lines = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert first == "*"
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert all((ROOT / name).exists() for name in allowed)
    packages = {f"{path.parent.relative_to(ROOT)}" for path in ROOT.glob("*/py.typed")}
    assert packages <= set(allowed)


def test_what_compose_mounts_is_there() -> None:
    described = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    named = set(described["volumes"])
    for service in described["services"].values():
        for volume in service["volumes"]:
            source, *target = volume.split(":")
            assert not target or source in named or (DEPLOY / source).exists(), source
        assert "build" in service or re.search(r":v?\d+\.\d+\.\d+$", service["image"]), (
            "an image of a version"
        )
    ignored = (ROOT / ".gitignore").read_text().split()
    for secret in described["secrets"].values():
        assert f"deploy/{secret['file'].removeprefix('./')}" in ignored
    provider = yaml.safe_load((DEPLOY / "grafana" / "dashboards.yml").read_text())["providers"][0]
    mounts = [volume.split(":")[:2] for volume in described["services"]["grafana"]["volumes"]]
    assert ["../docs/grafana.json", f"{provider['options']['path']}/edgeflock.json"] in mounts


GATEWAY = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["gateway"]


def test_gateways_are_guarded_as_the_server_and_told_where_it_is() -> None:
    described = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    server = described["services"]["edgeflock"]
    for key in ("build", "read_only", "cap_drop", "security_opt", "ulimits", "restart"):
        assert GATEWAY[key] == server[key]
    assert GATEWAY["entrypoint"] == ["edgeflock", "gateway"]
    assert f"--upstream=https://{server['hostname']}:8470" in GATEWAY["command"]
    files = [one.split("=")[1] for one in GATEWAY["command"] if "=/" in one]
    assert files == [f"/run/secrets/{name}" for name in GATEWAY["secrets"]]
    assert set(GATEWAY["secrets"]) <= set(described["secrets"])
    first, last = map(int, GATEWAY["ports"][0].split(":")[0].split("-"))
    assert GATEWAY["scale"] <= last + 1 - first
    others = [one for name, one in described["services"].items() if name != "gateway"]
    taken = [port for one in others for port in one["ports"]]
    assert not any(first <= int(port.split(":")[-2]) <= last for port in taken)
    parsed(["gateway", *GATEWAY["command"]])


@pytest.mark.slow
async def test_a_gateway_as_compose_starts_it(tmp_path: Path) -> None:
    """With its secrets in a folder in the place of where they are mounted; then its health is asked."""
    secrets, here = tmp_path / "secrets", Path(sys.executable).parent
    async with hosting(tmp_path / "run", with_tls=True) as hosted:
        secrets.mkdir()
        token = hosted.register.create("gateway", reusable=True).text
        (secrets / "gateway-token").write_text(token)
        for name in ("certificate.pem", "certificate-key.pem"):
            shutil.copy(tmp_path / "run" / name, secrets / name)
        given = [one.replace("/run/secrets", str(secrets)) for one in GATEWAY["command"]]
        given = [one.replace("https://edgeflock:8470", hosted.url) for one in given]
        process = await asyncio.create_subprocess_exec(
            *(str(here / GATEWAY["entrypoint"][0]), *GATEWAY["entrypoint"][1:], *given),
            *("--port", "0", "--json"),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            port = json.loads(await process.stdout.readline())["url"].rpartition(":")[2]
            url = f"https://127.0.0.1:{port}"
            environ = {
                **os.environ,
                "EDGEFLOCK_SERVER__DIRECTORY": str(secrets),
                "HEALTH_URL": f"{url}/livez",
            }
            command = [sys.executable, str(DEPLOY / "health.py")]
            done = await asyncio.to_thread(subprocess.run, command, env=environ)
            assert done.returncode == 0
            async with aiohttp.ClientSession() as http:
                while (await http.get(f"{url}/readyz", ssl=False)).status != 200:  # it follows the leader
                    await asyncio.sleep(0.05)
            assert [line.devices for line in hosted.gateways.connections] == [0]
        finally:
            process.terminate()
            assert await process.wait() == 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Prometheus)")
def test_prometheus_understands_its_settings(tmp_path: Path) -> None:
    """With the files where they are here in the place of where they are mounted."""
    text = (DEPLOY / "prometheus.yml").read_text()
    for mounted, here in {
        "/etc/prometheus/alerts.yml": ROOT / "docs" / "alerts.yml",
        "/run/secrets/viewer-token": tmp_path / "viewer-token",
        "/run/secrets/certificate.pem": tmp_path / "certificate.pem",
    }.items():
        assert mounted in text
        text = text.replace(mounted, str(here))
        here.touch()
    (tmp_path / "prometheus.yml").write_text(text)
    command = ["promtool", "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert yaml.safe_load(text)["scrape_configs"][0]["job_name"] == "edgeflock"


async def test_health(tmp_path: Path) -> None:
    """Over the TLS that the server makes for itself; then it is gone."""

    async def healthy(port: int) -> int:
        url = f"https://127.0.0.1:{port}/livez"
        environ = {**os.environ, "HEALTH_URL": url, "EDGEFLOCK_SERVER__DIRECTORY": str(tmp_path)}
        command = [sys.executable, str(DEPLOY / "health.py")]
        done = await asyncio.to_thread(subprocess.run, command, env=environ, capture_output=True)
        return done.returncode

    async with hosting(tmp_path, with_tls=True) as hosted:
        async with asyncio.timeout(300):
            while await healthy(hosted.port) != 0:  # it waits five seconds, which a busy machine may take
                await asyncio.sleep(0)
    assert await healthy(hosted.port) == 1


@pytest.mark.network
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_steps_without_a_container(tmp_path: Path) -> None:
    """The build's RUN in a folder, of what the image would copy; and what it made says its version."""
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for name in (line[1:] for line in allowed if line.startswith("!")):
        source, target = ROOT / name, tmp_path / "src" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    (command,) = (rest for name, rest in stages()[0] if name == "RUN")
    command = command.replace("/opt/edgeflock", str(tmp_path / "opt")).replace(
        "python -m", f"{shlex.quote(sys.executable)} -m"
    )
    # Whoever has no such index gets torch from the one that pip asks anyway.
    if not (index := os.environ.get("TORCH_INDEX")):
        command = command.replace('--extra-index-url "$TORCH_INDEX"', "")
    environ = {**os.environ, "TORCH_INDEX": index or ""}
    subprocess.run(command, shell=True, cwd=tmp_path / "src", env=environ, check=True)
    done = subprocess.run([tmp_path / "opt/bin/edgeflock", "--version"], capture_output=True, text=True)
    assert done.stdout.strip()
    assert not (tmp_path / "opt/bin/pip").exists()
