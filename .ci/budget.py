"""How much product code there is, by room; fails above the budget in .ci/budget.txt.

    python .ci/budget.py [--base main]

Lines of Python, all of them. Raise the budget in a commit that says why.
"""

import argparse
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOMS = ("client", "devices", "library", "server", "shared", "tui")


def counted(root: Path) -> Counter[str]:
    """Lines of each room's Python files in the working tree."""
    return Counter(
        {
            room: sum(len(file.read_bytes().splitlines()) for file in (root / room).rglob("*.py"))
            for room in ROOMS
        }
    )


def changed(root: Path, base: str) -> Counter[str] | None:
    """Lines that each room has gained since `base`; None if git does not know it."""
    command = ["git", "diff", "--numstat", "--no-renames", base, "--", *(f"{room}/*.py" for room in ROOMS)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode:
        return None
    gained: Counter[str] = Counter()
    for line in done.stdout.splitlines():
        added, removed, path = line.split("\t")
        gained[path.partition("/")[0]] += int(added) - int(removed)
    return gained


def main(arguments: list[str] | None = None) -> int:
    """Print the table. Returns 1 above the budget, else 0."""
    reader = argparse.ArgumentParser(".ci/budget.py", description=__doc__)
    reader.add_argument("--base", default="origin/main", help="what the difference is to")
    reader.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    asked = reader.parse_args(arguments)
    budget = int((asked.root / ".ci" / "budget.txt").read_text())
    lines, gained = counted(asked.root), changed(asked.root, asked.base)
    for room in ROOMS:
        print(f"{room:8} {lines[room]:7,}" + (f" {gained[room]:+6,}" if gained is not None else ""))
    print(f"{'all':8} {lines.total():7,}" + (f" {gained.total():+6,}" if gained is not None else ""))
    if lines.total() > budget:
        print(
            f"product code has {lines.total():,} lines, {lines.total() - budget:,} above the budget of "
            f"{budget:,}: delete some, or raise .ci/budget.txt in a commit that says why",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
