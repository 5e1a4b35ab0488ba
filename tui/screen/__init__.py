"""`edgeflock top`: the application, its widgets and its dialogs. The only package that imports textual.

Widgets hold the operator's choices and no state of the run. They receive their source and palette,
and draw the lines of `pages`. They send messages for actions that are not theirs, and do not know their
parent. Other packages use `Top` and `preferences`, which knows the folder of theme and columns. This
package loads textual, which may be missing: import it only to show a screen. Imports: textual,
`edgeflock.shared` and the other three packages.
"""

from edgeflock.tui.screen import preferences
from edgeflock.tui.screen.app import Top
