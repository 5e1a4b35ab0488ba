"""Checks of packages, each in its own process: a wheel for another processor crashes the process."""

import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata

from edgeflock.doctor.finding import CheckResult, bad, ok

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
