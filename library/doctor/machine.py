"""Checks of the machine: interpreter, clock, disk, memory, power, temperature and open files."""

import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from edgeflock.doctor.finding import CheckResult, bad, ok, warn
from edgeflock.shared.numbers import size

OLDEST_PYTHON = (3, 11)
OLDEST_GLIBC = (2, 28)
"""The glibc of onnxruntime's wheels."""

WARM, HOT = 75.0, 80.0
"""Degrees Celsius; at 80 a Raspberry Pi begins to slow down."""

LITTLE_MEMORY = 256 << 20
"""Bytes. A device with onnxruntime takes 110 MB, and the system needs some too."""

SKEW = 300.0
"""The allowed difference of this clock and the server's, in seconds. Certificates begin a day early."""

OTHER_FILES = 1024 + 64
"""Open files besides devices' connections: connections that are not accepted yet, and the server's own."""


def python(version: tuple[int, int, int], bits: int, libc: tuple[str, str]) -> CheckResult:
    """`libc` is platform.libc_ver()."""
    number, name = ".".join(map(str, version)), " ".join(part for part in libc if part)
    said = f"{number}, {bits}-bit{f', {name}' if name else ''}"
    if version[:2] < OLDEST_PYTHON:
        return bad("python", said, "install Python 3.11 or newer")
    if bits != 64:
        return bad("python", said, "there are no wheels for it: install the 64-bit system")
    if libc[0] == "musl" or (libc[0] == "glibc" and _numbers(libc[1]) < OLDEST_GLIBC):
        return bad("python", said, "onnxruntime's wheels need glibc 2.28 or newer: a newer system")
    return ok("python", said)


def clock(now: float, installed: float, root: Path) -> CheckResult:
    """`installed` is the time of this package's installation. A clock before it is wrong."""
    synchronised = root / "run/systemd/timesync"
    if now < installed:
        return bad(
            "clock", "it is before this package was installed", "set the clock: timedatectl set-ntp true"
        )
    if synchronised.is_dir() and not (synchronised / "synchronized").exists():
        return warn(
            "clock", "no time server has answered since the start", "timedatectl timesync-status says why"
        )
    return ok("clock", "plausible")


def skew(now: float, server: float | None) -> CheckResult | None:
    """Compare the clock with the server's answer. None if the answer has no time."""
    if server is None:
        return None
    difference = abs(now - server)
    if difference > SKEW:
        return warn(
            "clock",
            f"it is {difference:,.0f} s off the server's",
            "set the one that is wrong: timedatectl set-ntp true; certificates hold from a time to a time",
        )
    return ok("clock", f"within {max(1, round(difference))} s of the server's")


def disk(path: Path, free: int, writable: bool, recommended: int) -> CheckResult:
    """Check the file system of `path`. `recommended` is the recommended number of free bytes."""
    if not writable:
        return bad("disk", f"{path} cannot be written", f"chown it, or mend its disk: {path}")
    if free < recommended // 10:
        return bad("disk", f"{size(free)} left at {path}", "make room, or name another place")
    if free < recommended:
        return warn("disk", f"{size(free)} left at {path}", "make room before it is full")
    return ok("disk", f"{size(free)} left at {path}")


def memory(total: int, root: Path) -> CheckResult:
    """Check the machine's memory, and whether a service's can be limited."""
    if total < LITTLE_MEMORY:
        return warn(
            "memory",
            size(total),
            "a step may not fit: lower local.batch on the server, or stop other programs",
        )
    controllers = root / "sys/fs/cgroup/cgroup.controllers"
    if controllers.exists() and "memory" not in controllers.read_text().split():
        return warn(
            "memory",
            f"{size(total)}; the kernel counts no service's memory, so MemoryMax of the unit bounds nothing",
            "append cgroup_enable=memory to the line in /boot/firmware/cmdline.txt, and restart the machine",
        )
    return ok("memory", size(total))


def power(undervoltage: object) -> CheckResult | None:
    """Check a Raspberry Pi's power supply. None if it is unknown."""
    if undervoltage is None:
        return None
    if undervoltage:
        return bad(
            "power", "the supply is too weak", "another supply, or a shorter cable: cards are lost to this"
        )
    return ok("power", "enough")


def heat(degrees: object) -> CheckResult | None:
    """Check the temperature. None without a sensor."""
    if not isinstance(degrees, float):
        return None
    said = f"{degrees:.0f} degrees"
    if degrees >= HOT:
        return bad("heat", said, "the processor slows itself down: a heat sink, a fan, some air")
    if degrees >= WARM:
        return warn("heat", said, "close to where the processor slows down: some air")
    return ok("heat", said)


def open_files(limit: int, devices: int) -> CheckResult:
    """`limit` is ulimit -n, -1 if unlimited. Each device's connection is a file (limits.devices)."""
    needed = devices + OTHER_FILES
    if limit == -1 or limit >= needed:
        return ok("files", f"{'any number' if limit == -1 else f'{limit:,}'} may be open")
    return warn(
        "files",
        f"{limit:,} may be open, and limits.devices = {devices:,} needs {needed:,}",
        f"ulimit -n {needed} before it starts (the unit of install.sh has LimitNOFILE=65536), or fewer "
        "limits.devices",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


Load = Callable[[str], tuple[int, str]]
"""Module -> (exit code of a process that imports it, the last line of its output)."""


def try_import(module: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True)
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


def check_package(module: str, install: str, load: Load = try_import) -> CheckResult:
    """`install` is the command that installs the package."""
    code, last = load(module)
    if code == 0:
        return ok("package", f"{module} {version_of(module)}".rstrip())
    if code < 0:
        said = f"{module} dies as it loads ({signal.Signals(-code).name})"
        return bad("package", said, "its wheel is not for this processor: another version of it")
    if last.startswith("ModuleNotFoundError"):
        return bad("package", f"{module} is not installed", install)
    return bad("package", f"{module} cannot be loaded: {last}", install)


def version_of(module: str) -> str:
    try:
        return metadata.version(module)
    except metadata.PackageNotFoundError:
        return ""
