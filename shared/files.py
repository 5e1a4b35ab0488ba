"""Files that are replaced as a whole, and the folder of those that can be made again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The user's folder for files that can be made or downloaded again (XDG base directories)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgeflock"


def write_atomically(path: Path, octets: bytes, mode: int = 0o600, *, durable: bool = True) -> None:
    """Replace a file: readers see the old one or the new one, if `durable` also after a power failure."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(octets)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)
