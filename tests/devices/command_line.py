"""The edgeflock command in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def edgeflock(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`edgeflock ARGUMENTS`, in `cwd`; it can import the tests' models from anywhere."""
    command = [sys.executable, "-m", "edgeflock.devices", *arguments]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
