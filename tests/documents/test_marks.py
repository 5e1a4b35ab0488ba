"""Nothing to type stands in a document that is neither typed by a test nor said to be an illustration."""

from pathlib import Path

import pytest

from tests.documents.blocks import NAMED, PAGES, ROOT, Block, blocks, unfenced

BLOCKS = [block for page in PAGES for block in blocks(page)]

README = {line for block in blocks(ROOT / "README.md") if block.mark in NAMED for line in block.lines()}


def wrong(block: Block) -> str:
    """What is wrong with its mark; "" if nothing is."""
    kind, _, rest = block.mark.partition(" ")
    if block.mark in ("run", "long"):
        return ""
    if block.mark == "as in README.md":
        return ", ".join(f"README.md has no line {line!r}" for line in block.lines() if line not in README)
    if kind == "in":
        return "" if (ROOT / rest).is_file() else f"there is no file {rest}"
    if kind == "illustration:":
        return "" if rest else "why is it an illustration?"
    if block.page == "README.md" and block.mark in NAMED:
        there = (ROOT / NAMED[block.mark]).read_text("utf-8")
        return "" if block.mark in there else f"{NAMED[block.mark]} does not know it"
    return f"no mark that blocks.py knows stands above it: {block.mark!r}"


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_what_is_to_be_typed_is_typed_or_an_illustration(block: Block) -> None:
    assert not wrong(block), f"{block.place}: {wrong(block)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_to_be_typed_has_a_fence(page: Path) -> None:
    assert unfenced(page) == []


def test_marks_that_say_nothing_are_found() -> None:
    for mark in ("", "runs", "server", "in tests/nowhere.py", "illustration", "illustration: "):
        assert wrong(Block("docs/x.md", 1, mark, "edgeflock config\n")), mark
    assert wrong(Block("docs/x.md", 1, "as in README.md", "edgeflock config\n"))
    assert {block.mark for block in BLOCKS} >= {"run", "long", "as in README.md", *NAMED}
    assert len(BLOCKS) > 50
