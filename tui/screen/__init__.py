"""`edgeflock top`: the application, its widgets and its dialogs. The only room that imports textual.

Widgets hold what the operator chose, and nothing of the run. They are given their source, palette and labels,
draw what `pages` says, and tell what is not theirs to do by messages; none knows who holds it.
From outside: `Top`, and `preferences`, which knows where an operator's theme, keys and labels are kept. This
door loads textual, which need not be installed: go through it only when there is something to show.
Imports: textual, `edgeflock.shared` and the three other rooms.
"""

from edgeflock.tui.screen import preferences
from edgeflock.tui.screen.app import Top

__all__ = ["Top", "preferences"]
