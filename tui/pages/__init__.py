"""The contents of a screen without the screen: pure functions from a state to lines.

Each page is a file. Further files are `fleet` (columns and selection of the table), `query` (the filter),
`curves` (data of curves) and `printed` (a run without a screen). Other packages use `summary` (a run as
JSON), `device_page` and the module `curves`. Imports: `edgeflock.shared`,
`edgeflock.tui.sources` and `edgeflock.tui.text`.
"""

from edgeflock.tui.pages import curves
from edgeflock.tui.pages.curves import PlotCurve, XAxis
from edgeflock.tui.pages.device import device_page
from edgeflock.tui.pages.printed import summary
