"""What a screen shows, known without one: pure functions from a state to lines.

A file a page; besides, `fleet` (the columns of the table, and which devices are in it), `query` (the filter),
`curves` (what is drawn against what) and `printed` (a run without a screen). From outside the monitor:
`block` and `summary` (all of it as lines, or as JSON), `device_page`, and the module `curves`.
Imports: `edgeflock.shared`, `edgeflock.tui.sources` for what they show, `edgeflock.tui.text`.
"""

from edgeflock.tui.pages import curves
from edgeflock.tui.pages.curves import Against, PlotCurve
from edgeflock.tui.pages.device import device_page
from edgeflock.tui.pages.printed import block, summary

__all__ = ["Against", "PlotCurve", "block", "curves", "device_page", "summary"]
