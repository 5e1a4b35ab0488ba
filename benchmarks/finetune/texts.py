"""English texts that Debian's packages contain. They are downloaded by apt-get and never installed.

    anarchism 15.3-3            An Anarchist FAQ, prose, 12 MB          GPL-2
    linux-doc-6.1 6.1.192-2     parts of the documentation of Linux     GPL-2
    bible-kjv-text 4.38         the King James Bible of 1611, 4 MB      public domain (the program: GPL-2+)

The first two are for pretraining, the third is the new domain.
"""

import gzip
import re
import subprocess
from pathlib import Path

_LINUX = ("admin-guide", "core-api", "driver-api", "filesystems", "process")

PACKAGES = ("anarchism", "linux-doc-6.1", "bible-kjv-text", "bible-kjv")


def unpack(folder: Path) -> None:
    """Download the packages and unpack them into `folder`. Those that are there already stay."""
    for package in PACKAGES:
        place = folder / package
        if place.exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", package], cwd=folder, check=True)
        (archive,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, place], check=True)


def general(folder: Path) -> list[str]:
    """The documents for pretraining, sorted by path."""
    linux = folder / "linux-doc-6.1/usr/share/doc/linux-doc-6.1/Documentation"
    files = (
        *(folder / "anarchism/usr/share/doc/anarchism/markdown").glob("*.md*"),
        *(file for part in _LINUX for file in (linux / part).rglob("*.rst*")),
    )
    texts = (_read(file) for file in sorted(files) if file.is_file() and not file.is_symlink())
    return [text for text in texts if len(text) > 1000]


def bible(folder: Path) -> list[str]:
    """The chapters of the Bible in order, without the numbers of verses."""
    program, data = folder / "bible-kjv/usr/bin/bible", folder / "bible-kjv-text/usr/lib"
    lines = subprocess.run(
        [program, "-p", data, "-f", "gen1:1-rev22:21"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    chapters: dict[str, list[str]] = {}
    for line in lines:
        place, _, verse = line.partition(" ")
        chapters.setdefault(place.partition(":")[0], []).append(verse)
    return ["\n".join(verses) for verses in chapters.values()]


def _read(file: Path) -> str:
    octets = file.read_bytes()
    text = (gzip.decompress(octets) if file.suffix == ".gz" else octets).decode(errors="replace")
    return _join_lines(re.sub(r"\]\([^)]*\)", "]", text))


def _join_lines(text: str) -> str:
    """Join the lines of a paragraph, unless they are indented."""
    return re.sub(r"(?<=[^\n:])\n(?=[A-Za-z\"'(])", " ", text)
