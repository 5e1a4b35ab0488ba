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


NO_NAMES = frozenset(
    "told beside hopeless given kept heard behind ahead ways reach whoever known apart there here gone owed "
    "borne said asked taken made meant far again away over under of whom whose what why who least most up "
    "down near by".split()
)
"""Adverbs, prepositions, bare participles and metaphors: they do not say what something is or does."""

SERIALISED = {
    "behind": "the protocol's, of docs/protocol.md",
    "by": "the journal's, of optimizer.schedule_unit",
    "least": "the journal's, and the JSON of `edgeflock check`",
    "reach": "the JSON of `edgeflock check`",
    "said": "the JSON of `edgeflock doctor`",
    "Over": "the protocol's record",
    "up": "the feed's",
}
"""Names of settings and of data that others read."""


def _named(file: Path) -> list[str]:
    """The names of functions, parameters, attributes and fields that a file defines, and its own."""
    names = [file.stem]
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.arg):
            names.append(node.arg)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.append(node.attr)
        if isinstance(node, ast.ClassDef):
            names += [
                field.target.id
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            ]
    return names


def test_names_say_what_something_is_or_does() -> None:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    found = {
        (str(file.relative_to(ROOT)), name)
        for file in files
        for name in _named(file)
        if name.strip("_").lower() in NO_NAMES
    }
    assert sorted(one for one in found if one[1] not in SERIALISED) == []
    assert set(SERIALISED) <= {name for _, name in found}, "an exception that is none any more"
