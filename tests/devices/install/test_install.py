"""What install.sh does to a machine: one in a folder, with a Python, a pip and a systemd that only note what
they are asked to do. tests/devices/install/test_for_real.py runs it with the real ones.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

INSTALL = Path(__file__).parents[3] / "devices" / "install"

FAKES = {
    # Makes environments that hold what a "wheel", a text with a version, asks for.
    "fake-python": """
case $1 in
-c) exit 0 ;;
-m)
    mkdir -p "$3/bin" "$3/lib/python3.11/site-packages/edgeflock/devices"
    cp "$FAKES/venv-python" "$3/bin/python" ;;
esac
""",
    "venv-python": """
echo "pip $*" >>"$LOG"
for requirement; do :; done
case $requirement in *"$LACKING"*) exit 1 ;; esac
venv=$(dirname "$(dirname "$0")")
wheel=${requirement%%\\[*}
cp "$wheel" "$venv/version"
cp -r "$UNITS" "$venv/lib/python3.11/site-packages/edgeflock/devices/install"
cp "$FAKES/venv-edgeflock" "$venv/bin/edgeflock"
""",
    "venv-edgeflock": """
echo "edgeflock $*" >>"$LOG"
case "$1 $2" in
--version*) grep -v broken "$(dirname "$0")/../version" ;;
*join) read -r token; echo "$token" >"$7" ;;
esac
""",
    "systemctl": """
echo "systemctl $*" >>"$LOG"
version=$EDGEFLOCK_ROOT/opt/edgeflock/client/current/version
for unit; do :; done
case $1 in
is-active) [ -e "$EDGEFLOCK_ROOT/$unit" ] ;;
restart) rm -f "$EDGEFLOCK_ROOT/$unit"; ! grep -q unfit "$version" && touch "$EDGEFLOCK_ROOT/$unit" ;;
disable) rm -f "$EDGEFLOCK_ROOT/$unit" ;;
show) if grep -q again "$version"; then echo 3; else echo 0; fi ;;
esac
""",
    "id": '[ "$1" = -u ] && echo "$USER_ID" || [ -e "$EDGEFLOCK_ROOT/user" ]',
    "useradd": 'echo "useradd $*" >>"$LOG"; touch "$EDGEFLOCK_ROOT/user"',
    "userdel": 'echo "userdel $*" >>"$LOG"',
    "chown": 'echo "chown $*" >>"$LOG"',
    "uname": 'echo "$MACHINE"',
    "getconf": "echo 64",
    "sleep": "",
}


@dataclass(frozen=True)
class Machine:
    """A device in a folder."""

    root: Path
    environ: dict[str, str]

    def run(self, *options: str, code: int = 0, given: Mapping[str, str] = MappingProxyType({})) -> str:
        """What install.sh says, and ends with `code`."""
        done = subprocess.run(
            ["sh", str(INSTALL / "install.sh"), *options],
            env={**self.environ, **given},
            capture_output=True,
            text=True,
            cwd=self.root,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def wheel(self, version: str) -> str:
        path = self.root / f"edgeflock-{version}.whl"
        path.write_text(version + "\n")
        return path.name

    @property
    def log(self) -> str:
        """What was done to it."""
        return Path(self.environ["LOG"]).read_text()

    @property
    def version(self) -> str:
        return (self.client / "current" / "version").read_text().strip()

    @property
    def is_active(self) -> bool:
        return (self.root / "edgeflock-client.service").exists()

    @property
    def client(self) -> Path:
        return self.root / "opt/edgeflock/client"

    @property
    def versions(self) -> int:
        return len(list((self.client / "versions").iterdir()))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """With systemd, and a root who installs."""
    fakes = tmp_path / "fakes"
    for name, script in FAKES.items():
        fakes.mkdir(exist_ok=True)
        (fakes / name).write_text(f"#!/bin/sh\n{script}\n")
        (fakes / name).chmod(0o755)
    for folder in ("run/systemd/system", "etc/systemd/system", "usr/local/bin", "proc/device-tree", "home"):
        (tmp_path / folder).mkdir(parents=True)
    environ = {
        "PATH": f"{fakes}:/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
        "PYTHON": str(fakes / "fake-python"),
        "FAKES": str(fakes),
        "LOG": str(tmp_path / "log"),
        "UNITS": str(INSTALL),
        "LACKING": "nothing at all",
        "USER_ID": "0",
        "MACHINE": "aarch64",
        "EDGEFLOCK_ROOT": str(tmp_path),
        "EDGEFLOCK_SETTLE": "2",
    }
    return Machine(tmp_path, environ)


JOIN = {"EDGEFLOCK_URL": "https://192.0.2.1:8470", "EDGEFLOCK_TOKEN": "ef1.secret."}


def test_a_device_in_one_line(machine: Machine) -> None:
    (machine.root / "proc/device-tree/model").write_text("Raspberry Pi 4 Model B Rev 1.4\0")
    said = machine.run("--from", machine.wheel("0.1"), "--data", 'csv:/data/"my".csv?label=s', given=JOIN)
    assert "a Raspberry Pi (Raspberry Pi 4 Model B Rev 1.4), aarch64" in said
    assert "edgeflock-client.service runs" in said
    assert machine.version == "0.1"
    assert "edgeflock-0.1.whl[onnx]\n" in machine.log
    settings = (machine.root / "etc/edgeflock/client.toml").read_text()
    assert 'data = "csv:/data/\\"my\\".csv?label=s"\n' in settings
    assert 'identity = "/var/lib/edgeflock-client/identity.json"\n' in settings
    assert (machine.root / "var/lib/edgeflock-client").stat().st_mode & 0o777 == 0o700
    assert (machine.root / "var/lib/edgeflock-client/identity.json").read_text() == "ef1.secret.\n"
    assert "ef1.secret" not in machine.log, "neither in a command line nor in the environment of one"
    unit = (machine.root / "etc/systemd/system/edgeflock-client.service").read_text()
    assert unit == (INSTALL / "edgeflock-client.service").read_text()
    assert os.readlink(machine.root / "usr/local/bin/edgeflock") == str(
        machine.client / "current/bin/edgeflock"
    )
    steps = [line for line in machine.log.splitlines() if "is-active" not in line]
    assert steps[-4:-1] == [
        "systemctl daemon-reload",
        "systemctl enable --quiet edgeflock-client.service",
        "systemctl restart edgeflock-client.service",
    ]


def test_an_upgrade_keeps_what_the_device_is(machine: Machine) -> None:
    machine.run("--from", machine.wheel("0.1"), "--data", "npz:/data.npz", given=JOIN)
    settings = machine.root / "etc/edgeflock/client.toml"
    settings.write_text(settings.read_text() + "threads = 2\n")
    assert "upgraded to 0.2" in machine.run("--from", machine.wheel("0.2"))
    assert (machine.version, machine.versions) == ("0.2", 1)
    assert settings.read_text().endswith("threads = 2\n")
    assert (machine.root / "var/lib/edgeflock-client/identity.json").read_text() == "ef1.secret.\n"
    assert machine.log.count("client join") == 1


@pytest.mark.parametrize("version", ["0.2-broken", "0.2-unfit", "0.2-again"])
def test_what_does_not_come_up_is_taken_back(machine: Machine, version: str) -> None:
    """It prints no version, or its service does not start, or is started again and again."""
    machine.run("--from", machine.wheel("0.1"), "--data", "npz:/data.npz", given=JOIN)
    said = machine.run("--from", machine.wheel(version), code=1)
    assert "does not start; nothing was changed" in said or "the version before runs again" in said
    assert (machine.version, machine.versions) == ("0.1", 1)
    assert machine.is_active


def test_torch_where_onnxruntime_has_no_wheel(machine: Machine) -> None:
    said = machine.run("--from", machine.wheel("0.1"), given={"LACKING": "[onnx]"})
    assert "'onnx' cannot be installed here" in said
    assert "installed edgeflock 0.1 with torch" in said
    said = machine.run("--from", machine.wheel("0.2"), code=1, given={"LACKING": "whl"})
    assert "nothing was changed" in said
    assert (machine.version, machine.versions) == ("0.1", 1)


def test_what_is_left_to_do_is_said(machine: Machine) -> None:
    assert "EDGEFLOCK_URL and EDGEFLOCK_TOKEN" in machine.run("--from", machine.wheel("0.1"))
    assert "systemctl restart" not in machine.log
    assert "upgraded" in machine.run("--from", machine.wheel("0.2"), given=JOIN)
    assert "client join https://192.0.2.1:8470 --token-file - --identity" in machine.log


def test_a_server_beside_a_device(machine: Machine) -> None:
    machine.run("--from", machine.wheel("0.1"), "--data", "npz:/data.npz", given=JOIN)
    said = machine.run("--server", "--from", machine.wheel("0.1"))
    assert "systemctl enable --now edgeflock-server.service" in said
    assert "edgeflock-0.1.whl[server]\n" in machine.log
    assert (
        'directory = "/var/lib/edgeflock-server"' in (machine.root / "etc/edgeflock/server.toml").read_text()
    )
    machine.run("--server", "--uninstall", "--purge")
    assert not (machine.root / "opt/edgeflock/server").exists()
    assert machine.is_active
    assert machine.version == "0.1"
    assert "userdel" not in machine.log


def test_uninstalling_keeps_the_credential_unless_it_is_not_to(machine: Machine) -> None:
    machine.run("--from", machine.wheel("0.1"), "--data", "npz:/data.npz", given=JOIN)
    assert "left: " in machine.run("--uninstall")
    assert not machine.is_active
    for gone in ("opt/edgeflock", "usr/local/bin/edgeflock", "etc/systemd/system/edgeflock-client.service"):
        assert not os.path.lexists(machine.root / gone), gone
    assert (machine.root / "var/lib/edgeflock-client/identity.json").exists()
    machine.run("--from", machine.wheel("0.1"), given=JOIN)
    assert machine.log.count("client join") == 1
    machine.run("--uninstall", "--purge")
    assert not (machine.root / "var/lib/edgeflock-client").exists()
    assert not (machine.root / "etc/edgeflock").exists()
    assert "userdel edgeflock" in machine.log


def test_without_root_it_goes_to_the_home(machine: Machine) -> None:
    said = machine.run(
        "--from", machine.wheel("0.1"), "--data", "npz:/data.npz", given={"USER_ID": "1000", **JOIN}
    )
    home = machine.environ["HOME"]
    assert f"start it with: {machine.root}{home}/.local/bin/edgeflock client " in said
    assert "systemctl" not in machine.log
    assert "useradd" not in machine.log
    assert not (machine.root / "opt").exists()
    machine.run("--uninstall", "--purge", given={"USER_ID": "1000"})
    left = [path.name for path in Path(f"{machine.root}{home}").rglob("*") if not path.is_dir()]
    assert left == []


@pytest.mark.parametrize(
    ("uname", "says"), [("armv7l", "install the 64-bit one"), ("riscv64", "riscv64: neither onnxruntime")]
)
def test_a_machine_without_wheels_is_told_before_anything_is_done(
    machine: Machine, uname: str, says: str
) -> None:
    assert says in machine.run("--from", machine.wheel("0.1"), code=1, given={"MACHINE": uname})
    assert not (machine.root / "opt").exists()


def test_alpine_is_told(machine: Machine) -> None:
    (machine.root / "lib").mkdir()
    (machine.root / "lib/ld-musl-aarch64.so.1").touch()
    assert "glibc" in machine.run("--from", machine.wheel("0.1"), code=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--from"], "--from needs a value"),
        (["--frm", "x"], "--frm is unknown"),
        (["--from", "nowhere.whl"], "no such file"),
        (["--purge"], "--purge needs --uninstall"),
    ],
)
def test_words_that_make_no_sense(machine: Machine, options: list[str], says: str) -> None:
    assert says in machine.run(*options, code=1)


def test_half_a_download_does_nothing(machine: Machine) -> None:
    """The script is a function, called in its last line."""
    text = (INSTALL / "install.sh").read_text()
    assert text.endswith('\nmain "$@"\n')
    for part in (len(text) // 3, len(text) // 2, len(text) - 4):
        cut = machine.root / "cut.sh"
        cut.write_text(text[:part])
        subprocess.run(["sh", str(cut), "--from", "x"], env=machine.environ, capture_output=True, check=False)
        assert not (machine.root / "opt").exists()


SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed")
def test_shellcheck() -> None:
    assert SHELLCHECK is not None
    done = subprocess.run([SHELLCHECK, str(INSTALL / "install.sh")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
