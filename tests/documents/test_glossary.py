"""docs/glossary.md has one line a word, and every name that may be chosen where updates come together."""

import re

import pytest

from edgeflock.server.hosting.choices import CHOICES
from tests.documents.blocks import ROOT

PAGE = (ROOT / "docs" / "glossary.md").read_text("utf-8")
WORDS = [
    word
    for row in re.findall(r"^\| (\*\*.*?) \|", PAGE, re.MULTILINE)
    for word in re.findall(r"\*\*(.+?)\*\*", row)
]


def test_a_word_stands_once() -> None:
    assert len(WORDS) > 50
    assert sorted(WORDS) == sorted(set(WORDS))


@pytest.mark.parametrize("key", ["coordination.mode", "coordination.rule", "coordination.aggregate"])
def test_what_may_be_chosen_is_named(key: str) -> None:
    assert {name for name in CHOICES[key] if f"`{name}`" not in PAGE} == set()
