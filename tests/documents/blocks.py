"""The shell blocks of README, docs and examples, each with the mark that stands above it.

<!-- run -->                    test_run.py types it, at a small server with a run of its own
<!-- long -->                   the same, but it takes longer: only with -m long
<!-- as in README.md -->        each line stands in a block of that page, too, which is typed
<!-- in tests/some/test.py -->  there it is typed, or what it does is done
<!-- illustration: why -->      nobody types it, since it needs what is not to be had here
<!-- server -->                 of README alone: what NAMED says of it
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]

NAMED = {
    "quickstart": "tests/library/quickstart/test_quickstart.py",
    "tests": ".ci/run",
    **dict.fromkeys(("server", "device", "status"), "tests/integration/test_readme.py"),
}
"""Marks of README that other files know it by -> what types the block."""

_FENCE = re.compile(r"(?:^<!-- ([^\n]*?) -->\n)?^```(\S*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^    [^\n]*\n)+", re.MULTILINE)
_PROGRAMS = (
    "apt-get|cat|cd|cp|curl|docker|edgeflock|flwr|git|journalctl|kubectl|make|mosquitto_pub|openssl|pip|pipx|"
    r"psql|python3?|scp|sh|ssh|sudo|systemctl|uv|\.venv/bin/\S+"
)
_TYPED = re.compile(rf"^    (?:\$ )?(?:[A-Z_]+=\S+ )*(?:{_PROGRAMS}) ", re.MULTILINE)

INSTALLS = re.compile(r"^(?:python3 -m venv \S+|(?:\S*/)?pip install .*|\. \S+/activate)$")
"""What a test does without: its own packages are those of the tree."""


@dataclass(frozen=True, slots=True)
class Block:
    """What somebody is to type."""

    page: str
    line: int
    mark: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def lines(self) -> Iterator[str]:
        """Without what installs, and with what a backslash continues."""
        for line in self.text.replace("\\\n", " ").splitlines():
            parts = [part.strip() for part in line.split("&&")]
            if rest := " && ".join(part for part in parts if part and not INSTALLS.match(part)):
                yield rest


def blocks(page: Path) -> list[Block]:
    """Those of a page, in order."""
    text = page.read_text("utf-8")
    return [
        Block(str(page.relative_to(ROOT)), 1 + text.count("\n", 0, found.start()), found[1] or "", found[4])
        for found in _FENCE.finditer(text)
        if found[2] == "sh"
    ]


def unfenced(page: Path) -> list[str]:
    """Indented blocks with something to type, which have no place for a mark."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    return [found[0] for found in _INDENTED.finditer(text) if _TYPED.search(found[0])]


def files(page: Path) -> dict[str, str]:
    """Name -> text of the files that a page shows: fences whose first line is a comment with the name."""
    found = {}
    for fence in _FENCE.finditer(page.read_text("utf-8")):
        if name := re.match(r"# (\S+\.(?:toml|py|csv))\n", fence[4]):
            found[name[1]] = fence[4]
    return found
