"""Screens as data: a line is a list of (text, ink) spans. Pages are pure functions to lines.

An ink is the meaning of a span. screen/palette.py gives it a colour.
"""

from textwrap import wrap
from typing import Literal

from rich.cells import cell_len, set_cell_size

Ink = Literal[
    "text", "strong", "dim", "rule", "accent", "good", "warn", "bad", "first", "second", "third", "cursor",
    "chosen",
]  # fmt: skip
WITH_BACKGROUND: frozenset[Ink] = frozenset({"cursor", "chosen"})
"""Inks that are visible without text."""
Span = tuple[str, Ink]
Line = list[Span]
Align = Literal["left", "right"]


def fit(text: str, width: int, align: Align = "left") -> str:
    """Return exactly `width` cells of text. Longer text ends in an ellipsis."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, width)
    padding = " " * (width - length)
    return text + padding if align == "left" else padding + text


def line_width(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)


def crop(line: Line, width: int) -> Line:
    """Return exactly `width` cells of a line."""
    cropped: Line = []
    remaining = width
    for text, ink in line:
        length = cell_len(text)
        if length > remaining:
            if remaining:
                cropped.append((set_cell_size(text, remaining), ink))
            return cropped
        cropped.append((text, ink))
        remaining -= length
    if remaining:
        cropped.append((" " * remaining, "text"))
    return cropped


def justify(left: Line, right: Line, width: int) -> Line:
    """Return a line with `left` and `right` at its ends. `right` stays whole."""
    space = max(0, width - line_width(right))
    return crop(crop(left, space) + right, width)


def join_blocks(blocks: list[tuple[list[Line], int]], gap: int = 2) -> list[Line]:
    """Join blocks of lines side by side, each with its width. The first block sets the height."""
    height = len(blocks[0][0])
    joined: list[Line] = []
    for y in range(height):
        line: Line = []
        for number, (lines, width) in enumerate(blocks):
            if number:
                line.append((" " * gap, "text"))
            line += crop(lines[y] if y < len(lines) else [], width)
        joined.append(line)
    return joined


def columns(width: int, number: int) -> list[int]:
    """Return the widths of `number` equal columns with two cells between. The first ones take the rest."""
    each, rest = divmod(width - 2 * (number - 1), number)
    return [each + (n < rest) for n in range(number)]


def heading(title: str, value: Line, width: int) -> Line:
    """Return the first line of a panel: its title, a rule and its main number."""
    left: Line = [(title, "strong"), (" ", "text")]
    right: Line = [(" ", "text"), *value] if value else []
    rule = width - line_width(left) - line_width(right)
    if rule < 1:
        return crop(left + right, width)
    return [*left, ("─" * rule, "rule"), *right]


def notice(lines: list[Line], width: int, height: int) -> list[Line]:
    """Return a page with a few lines in its middle. Long sentences are wrapped."""
    lines = [part for line in lines for part in _wrap_line(line, max(1, width - 2))]
    above = max(0, (height - len(lines)) // 2)
    block = max((line_width(line) for line in lines), default=0)
    indent: Line = [(" " * max(0, (width - block) // 2), "text")]
    return page([*([[]] * above), *(indent + line for line in lines)], width, height)


def wrap_text(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width` cells, at least one line."""
    return wrap(text, max(1, width)) or [""]


def _wrap_line(line: Line, width: int) -> list[Line]:
    if len(line) != 1 or line_width(line) <= width:
        return [line]
    ((text, ink),) = line
    return [[(part, ink)] for part in wrap_text(text, width)]


def page(lines: list[Line], width: int, height: int) -> list[Line]:
    """Return exactly `height` lines of `width` cells."""
    return [crop(line, width) for line in (lines + [[]] * height)[:height]]


def plain_text(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
