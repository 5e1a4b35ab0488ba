"""Screens as text: lines of spans, readable numbers, and charts. This package knows nothing of runs.

All functions are pure. Other packages use `Line` (spans, each with its `Ink`), `plain_text` (lines as plain
text) and the module `numbers`. Imports: numpy and Rich's table of cell widths.
"""

from edgeflock.tui.text import numbers
from edgeflock.tui.text.lines import Ink, Line, plain_text
