"""Journals and a recording that older code wrote, and what that code made of them; see the READMEs."""

import gzip
import json
from pathlib import Path
from typing import Any

JOURNALS = Path(__file__).parent / "journals"
RECORDINGS = Path(__file__).parent / "recordings"


def unpacked(packed: Path, directory: Path) -> Path:
    """The file itself, in `directory`."""
    path = directory / packed.stem
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def expected(folder: Path) -> dict[str, Any]:
    """What is known of the files of a folder, by their names."""
    known: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return known
