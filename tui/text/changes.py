"""What differs between two lines: over a slow link every cell that is painted costs."""

from rich.cells import cell_len

from edgeflock.tui.text.lines import WITH_BACKGROUND, Line


def changed(before: Line, after: Line) -> list[tuple[int, int]]:
    """The spans of cells [start, end) that differ between two lines of one width."""
    spans: list[tuple[int, int]] = []
    old, new = _cells(before), _cells(after)
    for x, (was, is_) in enumerate(zip(old, new, strict=True)):
        if was == is_:
            continue
        if spans and x - spans[-1][1] <= _MOVE:
            spans[-1] = (spans[-1][0], x + 1)
        else:
            spans.append((x, x + 1))
    # The two halves of a wide character go together.
    return [
        (start - (new[start] == _HALF or old[start] == _HALF), end + (end < len(new) and new[end] == _HALF))
        for start, end in spans
    ]


_MOVE = 6
"""To move the terminal's cursor costs as much as so many cells."""
_HALF = ("", "text")


def _cells(line: Line) -> list[tuple[str, str]]:
    """(character, ink) of each cell; the second cell of a wide character is _HALF."""
    cells: list[tuple[str, str]] = []
    for text, ink in line:
        for char in text:
            width = cell_len(char)
            if width:
                blank = char == " " and ink not in WITH_BACKGROUND
                cells.append((char, "text" if blank else ink))
                cells += [_HALF] * (width - 1)
    return cells
