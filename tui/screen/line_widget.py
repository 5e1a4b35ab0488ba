"""A widget of lines that repaints only changed cells, because cells are costly over a slow link."""

from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual._compositor import ChopsUpdate
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from edgeflock.tui.screen.palette import Palette
from edgeflock.tui.text.lines import WITH_BACKGROUND, Line, crop


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


class LineWidget(Widget):
    """Draws the lines of a subclass. `redraw` repaints the differences."""

    DEFAULT_CSS: ClassVar[str] = "LineWidget { width: 1fr; height: 1fr; }"

    def __init__(self, palette: Palette, *, id: str) -> None:
        super().__init__(id=id)
        self._palette = palette
        self._lines: list[Line] = []
        self._strips: list[Strip] = []

    def draw(self, width: int, height: int) -> list[Line]:
        """Return the visible content: `height` lines of `width` cells."""
        raise NotImplementedError

    def redraw(self, *, whole: bool = False) -> None:
        """Draw again, and repaint the changed spans, or all if `whole`, e.g. after a change of theme."""
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
                spans = changed_spans(before[y], line)
                # Textual writes whole segments. Cut them at the edges of the changes.
                cuts = sorted({*(edge for span in spans for edge in span), width} - {0})
                self._strips[y] = Strip.join(self._strip(line).divide(cuts))
                regions += (Region(start, y, end - start, 1) for start, end in spans)
        self._lines = after
        if whole:
            self.refresh()
        elif regions:
            self.refresh(*regions)

    def _strip(self, line: Line) -> Strip:
        inks = self._palette.inks
        plain = [style for ink, style in inks.items() if ink not in WITH_BACKGROUND]
        segments: list[Segment] = []
        for text, ink in line:
            blank = text.isspace() and ink not in WITH_BACKGROUND
            if blank and segments and segments[-1].style in plain:
                # A blank has no visible colour. The colour of the text before it costs fewer bytes.
                segments[-1] = Segment(segments[-1].text + text, segments[-1].style)
            elif text:
                segments.append(Segment(text, inks[ink]))
        return Strip(segments)

    def render_line(self, y: int) -> Strip:
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width, self._palette.inks["text"])

    def on_resize(self, _: events.Resize) -> None:
        self.redraw(whole=True)

    def on_show(self, _: events.Show) -> None:
        self.redraw(whole=True)


class Bar(LineWidget):
    """A line that depends on the run."""

    DEFAULT_CSS: ClassVar[str] = "Bar { height: 1; }"

    class Clicked(Message):
        """The user clicked on a cell of the bar."""

        def __init__(self, bar: "Bar", x: int) -> None:
            super().__init__()
            self.bar, self.x = bar, x

    def __init__(self, line: Callable[[int], Line], palette: Palette, *, id: str) -> None:
        """`line`: width -> the content. An empty one is a blank line."""
        super().__init__(palette, id=id)
        self._line = line

    def draw(self, width: int, height: int) -> list[Line]:
        return [crop(self._line(width), width)]

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Clicked(self, event.x))


_RESET = "\x1b[0m"


class CompactUpdate(ChopsUpdate):
    """The same update in fewer bytes."""

    @classmethod
    def from_update(cls, update: ChopsUpdate) -> "CompactUpdate":
        return cls(update.chops, update.spans, update.chop_ends)

    def render_segments(self, console: Console) -> str:
        """What to write to the terminal."""
        colours = console._color_system or ColorSystem.TRUECOLOR
        parts: list[str] = []
        present = ""
        for y, start, stop in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= stop or end <= start:
                    continue
                left, right = max(x, start), min(end, stop)
                parts.append(Control.move_to(left, y).segment.text)
                for text, style, control in strip.crop(left - x, right - x):
                    if control or style is None or style.link:
                        # Rare, and not for us to take apart.
                        parts.append(_RESET + Strip([(text, style, control)]).render(console))  # type: ignore[list-item]
                        present = ""
                        continue
                    codes = _sgr_codes(style, colours)
                    if codes != present:
                        parts.append(f"\x1b[0;{codes}m" if codes else _RESET)
                        present = codes
                    parts.append(text)
        return "".join([*parts, _RESET])


@lru_cache(4096)
def _sgr_codes(style: Style, colours: ColorSystem) -> str:
    """The parameters of the SGR sequence that makes a style, e.g. 1;38;5;116."""
    prefix, _, _ = Strip.render_style(style, "X", color_system=colours).partition("X")
    return prefix.removeprefix("\x1b[").removesuffix("m")
