"""Screens as text: lines of spans, numbers as people read them, charts. Nothing here knows what a run is.

All of it is pure. From outside the monitor: `Line` (spans, each with its `Ink`), `text_of` (lines as plain
text) and the module `numbers`. Imports: numpy and Rich's table of cell widths, nothing of Edgeflock's.
"""

from edgeflock.tui.text import numbers
from edgeflock.tui.text.lines import Ink, Line, text_of

__all__ = ["Ink", "Line", "numbers", "text_of"]
