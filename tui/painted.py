"""A widget made of lines that repaints only the cells that changed: over a slow link every cell counts."""

from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from edgeflock.tui.lines import WITH_BACKGROUND, Ink, Line

if TYPE_CHECKING:
    from edgeflock.tui.app import Top


class Painted(Widget):
    """Subclasses say what their lines are; `redraw` brings what differs on the screen."""

    DEFAULT_CSS: ClassVar[str] = "Painted { width: 1fr; height: 1fr; }"

    if TYPE_CHECKING:

        @property
        def app(self) -> "Top": ...  # type: ignore[override]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._strips: list[Strip] = []

    def draw(self, width: int, height: int) -> list[Line]:
        """What is to be seen: `height` lines of `width` cells."""
        raise NotImplementedError

    def redraw(self, *, whole: bool = False) -> None:
        """Draw anew, and repaint the spans that differ (`whole`: everything, as after a change of theme)."""
        width, height = self.size
        if not (width and height and self.display):
            return
        before, after = self._lines, self.draw(width, height)
        whole = whole or len(before) != len(after)
        if whole:
            self._strips = [self._strip(line) for line in after]
        regions: list[Region] = []
        for y, line in enumerate(after):
            if not whole and line != before[y]:
                spans = changed(before[y], line)
                # Textual writes whole segments: these begin and end with what changed.
                cuts = sorted({*(edge for span in spans for edge in span), width} - {0})
                self._strips[y] = Strip.join(self._strip(line).divide(cuts))
                regions += (Region(start, y, end - start, 1) for start, end in spans)
        self._lines = after
        if whole:
            self.refresh()
        elif regions:
            self.refresh(*regions)

    def _strip(self, line: Line) -> Strip:
        inks: dict[Ink, Style] = self.app.inks
        plain = [style for ink, style in inks.items() if ink not in WITH_BACKGROUND]
        segments: list[Segment] = []
        for text, ink in line:
            blank = text.isspace() and ink not in WITH_BACKGROUND
            if blank and segments and segments[-1].style in plain:
                # A blank has no colour of its own: it costs less in that of what stands before it.
                segments[-1] = Segment(segments[-1].text + text, segments[-1].style)
            elif text:
                segments.append(Segment(text, inks[ink]))
        return Strip(segments)

    def render_line(self, y: int) -> Strip:
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width, self.app.inks["text"])

    def on_resize(self, _: events.Resize) -> None:
        self.redraw(whole=True)

    def on_show(self, _: events.Show) -> None:
        self.redraw(whole=True)


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
