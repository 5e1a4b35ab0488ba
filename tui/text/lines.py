"""Screens as data: a line is a list of (text, ink) spans. Pages are pure functions to lines.

An ink is a name that screen/palette.py gives a colour: what a span means, not how it looks.
"""

from textwrap import wrap
from typing import Literal

from rich.cells import cell_len, set_cell_size

Ink = Literal[
    "text",
    "strong",
    "dim",
    "rule",
    "accent",
    "good",
    "warn",
    "bad",
    "first",
    "second",
    "third",
    "cursor",
    "chosen",
]
WITH_BACKGROUND: frozenset[Ink] = frozenset({"cursor", "chosen"})
"""Inks that show where there is no letter."""
Span = tuple[str, Ink]
Line = list[Span]
Align = Literal["left", "right"]


def fit(text: str, width: int, align: Align = "left") -> str:
    """Exactly `width` cells of text; what is cut off ends in an ellipsis."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, width)
    padding = " " * (width - length)
    return text + padding if align == "left" else padding + text


def width_of(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)


def crop(line: Line, width: int) -> Line:
    """Exactly `width` cells of a line."""
    cropped: Line = []
    left = width
    for text, ink in line:
        length = cell_len(text)
        if length > left:
            if left:
                cropped.append((set_cell_size(text, left), ink))
            return cropped
        cropped.append((text, ink))
        left -= length
    if left:
        cropped.append((" " * left, "text"))
    return cropped


def apart(left: Line, right: Line, width: int) -> Line:
    """`left` and `right` at the two ends of a line; `right` stays whole."""
    room = max(0, width - width_of(right))
    return crop(crop(left, room) + right, width)


def beside(blocks: list[tuple[list[Line], int]], gap: int = 2) -> list[Line]:
    """Blocks of lines, each with its width, side by side; the first one says how many lines."""
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


def columns(width: int, number: int, gap: int = 2) -> list[int]:
    """The widths of `number` equal columns with gaps between them; the first ones take what is left."""
    each, rest = divmod(width - gap * (number - 1), number)
    return [each + (n < rest) for n in range(number)]


def heading(title: str, value: Line, width: int) -> Line:
    """The first line of a panel: its title, a rule, and the number that matters."""
    left: Line = [(title, "strong"), (" ", "text")]
    right: Line = [(" ", "text"), *value] if value else []
    rule = width - width_of(left) - width_of(right)
    if rule < 1:
        return crop(left + right, width)
    return [*left, ("─" * rule, "rule"), *right]


def notice(lines: list[Line], width: int, height: int) -> list[Line]:
    """A few lines in the middle of an empty page; a sentence that is too long for it goes over several."""
    lines = [part for line in lines for part in _wrapped(line, max(1, width - 2))]
    above = max(0, (height - len(lines)) // 2)
    block = max((width_of(line) for line in lines), default=0)
    indent: Line = [(" " * max(0, (width - block) // 2), "text")]
    return page([*([[]] * above), *(indent + line for line in lines)], width, height)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, one at least."""
    return wrap(text, max(1, width)) or [""]


def _wrapped(line: Line, width: int) -> list[Line]:
    if len(line) != 1 or width_of(line) <= width:
        return [line]
    ((text, ink),) = line
    return [[(part, ink)] for part in wrapped(text, width)]


def page(lines: list[Line], width: int, height: int) -> list[Line]:
    """Exactly height lines of width cells."""
    return [crop(line, width) for line in (lines + [[]] * height)[:height]]


def text_of(lines: list[Line]) -> str:
    """The lines as plain text."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
