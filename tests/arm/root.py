"""A Debian 12 for 64-bit Arm in a folder: built once, and kept."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

PLACE = Path(
    os.environ.get("EDGEFLOCK_ARM_ROOT") or Path.home() / ".cache" / "edgeflock" / "arm64-bookworm"
).absolute()
"""Where it is kept; some 265 MB."""

MIRROR = "deb http://deb.debian.org/debian bookworm main"

SOURCES = Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")
"""This machine's own, which may name a mirror that is nearer."""

INCLUDED = "python3,python3-venv,ca-certificates,iproute2,procps"

_BINFMT = Path("/proc/sys/fs/binfmt_misc")
_NEEDED = {"unshare": "util-linux", "mmdebstrap": "mmdebstrap"}
_FOR_QEMU = {"qemu-aarch64-static": "qemu-user-static", "update-binfmts": "binfmt-support"}

IS_ARM = platform.machine() in ("aarch64", "arm64")


def missing() -> str | None:
    """Why there can be none here; None if nothing is missing."""
    if platform.system() != "Linux" or os.geteuid() != 0:
        return "only root can mount, on Linux"
    needed = _NEEDED if IS_ARM else {**_NEEDED, **_FOR_QEMU}
    packages = [package for command, package in needed.items() if shutil.which(command) is None]
    return f"apt-get install {' '.join(packages)}" if packages else None


def kept() -> Path:
    """The root, which is built if it is not there: five to ten minutes."""
    if not IS_ARM:
        _let_the_kernel_call_qemu()
    if not PLACE.exists():
        half = PLACE.with_name(f"{PLACE.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        half.parent.mkdir(parents=True, exist_ok=True)
        own = next((str(path) for path in SOURCES if _is_debian(path)), MIRROR)
        command = [
            *("mmdebstrap", "--architectures=arm64", "--variant=minbase", f"--include={INCLUDED}"),
            # A mirror that was frozen at some day is past its date.
            *('--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=Acquire::Check-Date "false"'),
            *("bookworm", str(half), own),
        ]
        subprocess.run(command, check=True)
        half.rename(PLACE)
    return PLACE


def _is_debian(sources: Path) -> bool:
    return sources.exists() and "bookworm" in sources.read_text() and "debian" in sources.read_text()


def _let_the_kernel_call_qemu() -> None:
    """For programs of another processor."""
    if not (_BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "none", str(_BINFMT)], check=True)
    if not (_BINFMT / "qemu-aarch64").exists():
        subprocess.run(["update-binfmts", "--enable", "qemu-aarch64"], check=True)
