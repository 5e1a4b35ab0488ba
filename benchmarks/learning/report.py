"""learning.md and the figure, from the records."""

from pathlib import Path


def write(results: Path, out: Path) -> None:
    """Leave learning.md in `out`."""
