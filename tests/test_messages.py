"""All messages of the product in one list: errors, warnings and lines of the log.

python -m tests.test_messages        prints them, to be read aloud
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("client", "devices", "library", "server", "shared", "tui")

DIALECT = (
    "told",
    "beside",
    "whoever",
    "hopeless",
    "goes along",
    "so-manieth",
    "of its own accord",
    "comes to naught",
)
"""Words and phrases that a reader has to guess."""

LONGEST = 45
"""The most words of a sentence, with what is filled in."""

_LOGS = ("debug", "info", "warning", "error", "critical", "exception")


def messages() -> Iterator[tuple[str, str]]:
    """(file:line, text) of each exception that is raised with a text, and of each line of the log."""
    for file in (file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else node
            if not isinstance(call, ast.Call) or not call.args:
                continue
            logs = isinstance(call.func, ast.Attribute) and call.func.attr in _LOGS
            logs = logs and getattr(getattr(call.func, "value", None), "id", "") == "log"
            if (logs or isinstance(node, ast.Raise)) and (text := _text(call.args[0])):
                yield f"{file.relative_to(ROOT)}:{call.lineno}", text


def _text(node: ast.expr) -> str:
    """The text of a literal; "..." stands for what is filled in. "" for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "..." for part in node.values)
    return ""


def test_messages_are_plain() -> None:
    found = [*messages()]
    assert len(found) > 800
    hard = [
        (place, text)
        for place, text in found
        if any(re.search(rf"\b{word}\b", text) for word in DIALECT)
        or any(len(part.split()) > LONGEST for part in re.split(r"[.;:] ", text))
    ]
    assert hard == []


@pytest.mark.parametrize("text", ["whoever reads it", "it is told of", "word " * 46])
def test_what_is_hard_is_found(text: str) -> None:
    assert any(re.search(rf"\b{word}\b", text) for word in DIALECT) or len(text.split()) > LONGEST


if __name__ == "__main__":
    for place, text in messages():
        print(f"{place}: {text}")
