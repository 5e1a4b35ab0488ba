"""Names of classes: one a concept, so that a search for it finds it."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("client", "devices", "library", "server", "shared", "tui")
SHARED = {"Model": "the protocol's record, as docs/protocol.md calls it, and the name of `import edgeflock`"}
"""Names that two classes have, and why."""


def test_no_two_public_classes_have_one_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file in (file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(file.relative_to(ROOT)))
    doubled = {name: files for name, files in found.items() if len(files) > 1}
    assert {name: files for name, files in doubled.items() if name not in SHARED} == {}
    assert set(SHARED) <= set(doubled), "an exception that is none any more"
