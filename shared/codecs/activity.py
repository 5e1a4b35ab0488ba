"""Activity of the rows and columns of a model in the changes that a device received.

Each tensor counts as a matrix, as in grid.py; its rows and columns are its lines. Both ends count the entries
of each line since the last whole model, with a decaying weight. So both can predict where the next entries
are likely.
"""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout

Activity = NDArray[np.uint16]
"""[Layout.lines[-1]]: sixteen times the decayed number of entries of each line. The weight of a step falls by
one eighth per step."""

_LIMIT = 255
"""The most entries of a line that one step counts: with this limit, the sum never exceeds 16 bits."""


def initial(layout: Layout) -> Activity:
    """The activity of a model that was sent whole: zeros."""
    return np.zeros(layout.lines[-1], np.uint16)


def follow(activity: Activity, indices: NDArray[np.int64] | slice, layout: Layout) -> Activity:
    """Return the activity after a step with entries at `indices` (int64 [k], strictly increasing).

    A step with no entries, or with all of them, gives no information and leaves it unchanged.
    """
    if isinstance(indices, slice) or indices.size == 0:
        return activity
    tensors = np.searchsorted(layout.bounds, indices, side="right") - 1
    columns = layout.grids[tensors, 1]
    row, column = np.divmod(indices - layout.bounds[tensors], columns)
    row += layout.lines[tensors]
    column += layout.lines[tensors] + layout.grids[tensors, 0]
    entries = np.bincount(np.concatenate([row, column]), minlength=activity.size)
    return activity - (activity >> 3) + (16 * np.minimum(entries, _LIMIT)).astype(np.uint16)
