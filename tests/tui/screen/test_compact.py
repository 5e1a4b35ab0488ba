"""What goes to the terminal shows the same as what Textual would have sent, in fewer bytes."""

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.strip import Strip

from edgeflock.tui.screen.line_widget import CompactUpdate

WIDTH = 30
STYLES = [
    Style(color="red"),
    Style(color="red", bold=True),
    Style(bgcolor="blue"),
    Style(reverse=True),
    Style(),
]
CONSOLE = Console(color_system="truecolor", force_terminal=True, width=WIDTH)

Cell = tuple[str, str]


def terminal(octets: str) -> dict[tuple[int, int], Cell]:
    """A terminal of few words: it knows where the cursor goes and which style holds."""
    cells: dict[tuple[int, int], Cell] = {}
    x = y = 0
    style = ""
    for move, codes, char in re.findall(r"\x1b\[(\d+;\d+)H|\x1b\[([\d;]*)m|([^\x1b])", octets):
        if move:
            y, x = (int(part) - 1 for part in move.split(";"))
        elif char == "\n":
            y, x = y + 1, 0
        elif char:
            cells[x, y] = (char, style)
            x += 1
        else:
            parts = codes.split(";")
            style = ";".join(
                parts[len(parts) - parts[::-1].index("0") :] if "0" in parts else [style, *parts]
            ).strip(";")
    return cells


lines = st.lists(
    st.tuples(st.text("ab 1", min_size=1, max_size=9), st.sampled_from(STYLES)),
    min_size=1,
    max_size=6,
).map(lambda parts: Strip([Segment(*part) for part in parts]).adjust_cell_length(WIDTH, Style()))
edges = st.tuples(st.integers(0, WIDTH - 1), st.integers(1, WIDTH)).filter(lambda pair: pair[0] < pair[1])


@given(st.lists(lines, min_size=1, max_size=3), st.data())
def test_every_changed_cell_is_as_it_should_be(strips: list[Strip], data: st.DataObject) -> None:
    spans = [(y, *data.draw(edges)) for y in range(len(strips))]
    cut = data.draw(st.integers(1, WIDTH - 1))  # two widgets side by side
    chops = [{0: strip.crop(0, cut), cut: strip.crop(cut, WIDTH)} for strip in strips]
    update = ChopsUpdate(chops, spans, [[cut, WIDTH]] * len(strips))
    theirs = terminal(update.render_segments(CONSOLE))
    ours = terminal(CompactUpdate.from_update(update).render_segments(CONSOLE))
    assert ours.keys() == {(x, y) for y, start, stop in spans for x in range(start, stop)}, (
        "these cells, no others"
    )
    assert ours == {place: theirs[place] for place in ours}
