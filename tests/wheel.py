"""The wheel of this tree."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

PACKED = (
    *("client", "devices", "library", "server", "shared", "tui"),
    *("LICENSE", "NOTICE", "README.md", "pyproject.toml"),
)


def built(folder: Path) -> Path:
    """Built in `folder` from a copy, so that nothing is left in the tree."""
    for name in PACKED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "src" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / "src" / name)
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(folder / "src")]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel
