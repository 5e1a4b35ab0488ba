"""On 64-bit Arm: installed from a wheel by install.sh, joined to a server outside, trained, killed, removed.

Takes ten minutes and more, and a package index: only with `-m arm`. Skipped where a part is not to be had.
"""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgeflock.operations.status import status
from edgeflock.server.identity.certificate import own_certificate
from edgeflock.shared.errors import EdgeflockError
from tests.arm.pi import ALARM, STATE, Pi
from tests.arm.root import kept, missing
from tests.digits import of_28
from tests.ports import lasting
from tests.wheel import ROOT, built

pytestmark = [
    pytest.mark.arm,
    pytest.mark.timeout(5400),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]

EDGEFLOCK = "/usr/local/bin/edgeflock"
SETTINGS = "/etc/edgeflock/client.toml"
MAX_DELAY = 900.0
"""Seconds: qemu takes a hundred times as long as the processor."""


class Server:
    """A real one, outside, which may be killed and started again."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.directory = folder / "run"
        self.directory.mkdir(parents=True)
        own = own_certificate(self.directory, "127.0.0.1")
        port = lasting()
        self.url = f"https://127.0.0.1:{port}"
        named = {
            "server.directory": self.directory,
            "server.port": port,
            "server.certificate": own.certificate,
            "server.key": own.key,
            # What qemu takes for a handshake is not to look like somebody who keeps a door open.
            "limits.request_seconds": 300,
        }
        self._settings = [*(f"{key}={value}" for key, value in named.items()), *settings]
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        reported = [word for setting in self._settings for word in ("--set", setting)]
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "edgeflock", "server", *reported]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        before = self.log().count("To watch and act")
        until(lambda: self.log().count("To watch and act") > before, self.log)

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def log(self) -> str:
        return self._log.read_text()

    def token(self) -> str:
        printed = re.findall(r"client join https://\S+ (\S+)", self.log())
        return str(printed[-1])

    def status(self) -> dict[str, Any]:
        """As `edgeflock status --json` has it; nothing while it is away."""
        token = (self.directory / "admin-token").read_text().strip()
        try:
            return asyncio.run(status(self.url, token, feed=False))
        except EdgeflockError:
            return {"version": -1, "devices": [], "findings": []}

    def device(self) -> dict[str, Any]:
        (one,) = self.status()["devices"]
        return dict(one)


def until(true: Callable[[], bool], said: Callable[[], str]) -> None:
    """Look until it is true; `said` tells why it may not be."""
    end = time.monotonic() + MAX_DELAY
    while not true():
        assert time.monotonic() < end, said()[-4000:]
        time.sleep(1.0)


@contextmanager
def serving(folder: Path, *settings: str) -> Iterator[Server]:
    server = Server(folder, *settings)
    server.start()
    try:
        yield server
    finally:
        server.end(signal.SIGTERM)


class Training:
    """A client on the device, as its service would run it."""

    def __init__(self, pi: Pi, log: Path, *words: str) -> None:
        self._pi, self._log, self._words = pi, log, words
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = self._pi.start(EDGEFLOCK, "client", *self._words, log=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def code(self) -> int | None:
        """Its exit code, once it has ended by itself."""
        assert self._process is not None
        return self._process.poll()

    def log(self) -> str:
        return self._log.read_text(errors="replace")


@contextmanager
def training(pi: Pi, log: Path, *words: str) -> Iterator[Training]:
    client = Training(pi, log, *words)
    client.start()
    try:
        yield client
    finally:
        client.kill()


@pytest.fixture(scope="module")
def pi(tmp_path_factory: pytest.TempPathFactory) -> Pi:
    pi = Pi(kept(), tmp_path_factory.mktemp("pi") / "root")
    assert pi.run("uname", "-m").stdout == "aarch64\n"
    folder = pi.root / "srv"
    wheel = built(tmp_path_factory.mktemp("wheel"))
    for path in (wheel, ROOT / "devices" / "install" / "install.sh", ROOT / "constraints.txt"):
        (folder / path.name).write_bytes(path.read_bytes())
    return pi


def install(pi: Pi, *words: str, **more: str) -> str:
    done = pi.run("sh", "/srv/install.sh", *words, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_pi_installs_joins_trains_and_comes_back(pi: Pi, tmp_path: Path) -> None:
    """PaperCNN of 211,690 parameters; both ends are killed, and its supply weakens for a while."""
    of_28(tmp_path / "digits.npz")
    (pi.root / "srv" / "digits.npz").write_bytes((tmp_path / "digits.npz").read_bytes())
    (wheel,) = (pi.root / "srv").glob("*.whl")
    settings = (
        "model.module=edgeflock.client.zoo:PaperCNN",
        f"model.data=npz:{tmp_path / 'digits.npz'}",
        "end.updates=60",
        "evaluation.every=5",
    )
    with serving(tmp_path / "server", *settings) as server:
        said = install(
            pi, "--from", f"/srv/{wheel.name}", "--data", "npz:/srv/digits.npz",
            EDGEFLOCK_URL=server.url, EDGEFLOCK_TOKEN=server.token(),
            PIP_CONSTRAINT="/srv/constraints.txt", PIP_ONLY_BINARY=":all:",
            PIP_NO_COMPILE="0",  # so pip spells yes; it would be most of what qemu has to do
        )  # fmt: skip
        assert "on a Raspberry Pi (Raspberry Pi 4 Model B Rev 1.4), aarch64" in said
        assert "with onnx" in said
        assert "start it with: /usr/local/bin/edgeflock client /etc/edgeflock/client.toml" in said
        kept_there = (pi.root / STATE[1:] / "identity.json").stat()
        assert kept_there.st_mode & 0o777 == 0o600
        assert kept_there.st_uid != 0
        # Compiled once, by whom the folder belongs to.
        imported = "import edgeflock.client.run, edgeflock.client.training, edgeflock.client.backends.onnx"
        assert pi.run("/opt/edgeflock/client/current/bin/python", "-c", imported).returncode == 0
        doctor = pi.run(EDGEFLOCK, "doctor", SETTINGS, "--json")
        found = {one["check"]: one for one in json.loads(doctor.stdout)["findings"]}
        assert doctor.returncode == 0, doctor.stdout
        assert found["package"]["said"].startswith("onnxruntime")
        assert (found["power"]["state"], found["heat"]["said"]) == ("ok", "52 degrees")

        with training(pi, tmp_path / "client.log", SETTINGS) as client:

            def has(version: int) -> None:
                until(lambda: server.status()["version"] >= version, client.log)

            has(10)
            device = server.device()
            assert device["facts"]["class"] == "raspberry-pi-4"
            assert device["facts"]["machine"] == "aarch64"
            assert device["facts"]["backend"].startswith("onnxruntime")
            assert "connected to https://127.0.0.1" in client.log()

            server.end(signal.SIGKILL)
            until(lambda: "trying again" in client.log(), client.log)
            server.start()
            until(lambda: "connected again to https://127.0.0.1" in client.log(), client.log)
            begun = server.status()["version"]
            assert begun >= 10
            has(begun + 5)

            client.kill()
            until(lambda: not server.device()["connected"], server.log)
            begun = server.status()["version"]
            client.start()
            has(begun + 5)

            pi.tell(ALARM, "1\n")
            until(lambda: server.device()["paused_because"] is not None, client.log)
            device = server.device()
            assert "under-voltage: its supply is too weak" in device["paused_because"]
            assert device["telemetry"]["undervoltage"] == 1
            assert device["telemetry"]["temperature"] == pytest.approx(51.6, abs=0.01)
            pi.tell(ALARM, "0\n")
            until(lambda: client.code() is not None, client.log)
            assert client.code() == 0, client.log()
            assert re.search(r"\d+ updates from \d+ samples", client.log())
        ended = server.status()
        assert (ended["state"], ended["version"]) == ("finished", 60)
        assert ended["evaluation"]["accuracy"] > 0.3, "a tenth is chance"
        print(json.dumps({"evaluation": ended["evaluation"], "device": server.device()}, indent=1))
    verify = [sys.executable, "-m", "edgeflock", "journal", "verify", str(server.directory)]
    assert subprocess.run(verify, capture_output=True).returncode == 0


def test_a_pi_trains_on_a_stream(pi: Pi, tmp_path: Path) -> None:
    """30 digits a second, kept on disk: what came before a kill is trained on after it."""
    settings = ("model.module=edgeflock.client.zoo:DigitsCNN", "end.updates=40", "evaluation.every=5")
    identity = f"{STATE}/stream.json"
    with serving(tmp_path / "server", *settings) as server:
        (pi.root / "srv" / "token").write_text(server.token())
        (pi.root / "srv" / "token").chmod(0o600)
        joined = pi.run(
            EDGEFLOCK, "client", "join", server.url, "--token-file", "/srv/token", "--identity", identity
        )
        assert joined.returncode == 0, joined.stderr
        pi.run("chown", "-R", "edgeflock:edgeflock", STATE)
        words = ["--identity", identity, "--data", "synthetic:digits:?rate=30"]
        words += ["--set", f"client.buffer={STATE}/stream.sqlite", "--set", f"client.directory={STATE}"]
        with training(pi, tmp_path / "client.log", *words) as client:
            until(lambda: server.status()["version"] >= 10, client.log)
            client.kill()
            client.start()
            until(lambda: client.code() is not None, client.log)
            assert client.code() == 0, client.log()
        reported = server.device()["telemetry"]
        assert reported["came"] >= reported["trained"] > 0
        assert server.status()["version"] == 40
        print(json.dumps(reported, indent=1), client.log()[-1500:])


def test_a_pi_is_left_as_it_was(pi: Pi) -> None:
    install(pi, "--uninstall", "--purge")
    for name in ("opt/edgeflock", "etc/edgeflock", STATE[1:], "usr/local/bin/edgeflock"):
        assert not (pi.root / name).exists()
    assert "edgeflock" not in (pi.root / "etc/passwd").read_text()
