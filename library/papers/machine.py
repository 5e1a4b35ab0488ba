"""What reports say of the machine and of the code."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path


def machine() -> str:
    """E.g. "2 cores (AMD EPYC), 23 GiB, Python 3.11.7"."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Python {platform.python_version()}"


@cache
def commit() -> str:
    """The commit of the checkout with this code, with a plus if files differ; unknown without one."""
    root = Path(__file__).resolve().parents[2]
    command = "git describe --always --exclude=* --abbrev=10 --dirty=+"
    if not (root / ".git").exists():
        return "unknown"
    try:
        done = subprocess.run(command.split(), cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
