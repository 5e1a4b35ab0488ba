"""Differences between two lines, because painted cells are costly over a slow link."""

from rich.cells import cell_len

from edgeflock.tui.text.lines import WITH_BACKGROUND, Line


def changed_spans(before: Line, after: Line) -> list[tuple[int, int]]:
    """Return the spans of cells [start, end) that differ between two lines of the same width."""
    spans: list[tuple[int, int]] = []
    old, new = _cells(before), _cells(after)
    for x, (old_cell, new_cell) in enumerate(zip(old, new, strict=True)):
        if old_cell == new_cell:
            continue
        if spans and x - spans[-1][1] <= _MOVE:
            spans[-1] = (spans[-1][0], x + 1)
        else:
            spans.append((x, x + 1))
    # Repaint both halves of a wide character.
    return [
        (start - (new[start] == _HALF or old[start] == _HALF), end + (end < len(new) and new[end] == _HALF))
        for start, end in spans
    ]


_MOVE = 6
"""A cursor movement costs as much as this number of cells."""
_HALF = ("", "text")


def _cells(line: Line) -> list[tuple[str, str]]:
    """Return (character, ink) of each cell. The second cell of a wide character is _HALF."""
    cells: list[tuple[str, str]] = []
    for text, ink in line:
        for char in text:
            width = cell_len(char)
            if width:
                blank = char == " " and ink not in WITH_BACKGROUND
                cells.append((char, "text" if blank else ink))
                cells += [_HALF] * (width - 1)
    return cells
