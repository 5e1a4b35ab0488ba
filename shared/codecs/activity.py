"""How active the rows and columns of a model have been in the changes that a device was sent.

Each tensor is taken for a matrix, as in grid.py; its rows and its columns are its lines. Both ends count the
entries of each line from the last whole model on, older ones less and less, and so know beforehand where the
next ones are likely to be.
"""

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.model.layout import Layout

Activity = NDArray[np.uint16]
"""[Layout.lines[-1]]: sixteen times the entries of each line, those of each step an eighth less than those of
the next."""

_MOST = 255
"""Entries of a line that count in a step: so many in every step still make no more than 16 bits."""


def none(layout: Layout) -> Activity:
    """Of a model that came whole."""
    return np.zeros(layout.lines[-1], np.uint16)


def follow(activity: Activity, where: NDArray[np.int64] | slice, layout: Layout) -> Activity:
    """That after a step with entries at `where` (int64 [k], strictly increasing).

    A step of none, or of all, tells nothing: that before.
    """
    if isinstance(where, slice) or where.size == 0:
        return activity
    tensors = np.searchsorted(layout.bounds, where, side="right") - 1
    columns = layout.grids[tensors, 1]
    row, column = np.divmod(where - layout.bounds[tensors], columns)
    row += layout.lines[tensors]
    column += layout.lines[tensors] + layout.grids[tensors, 0]
    entries = np.bincount(np.concatenate([row, column]), minlength=activity.size)
    return activity - (activity >> 3) + (16 * np.minimum(entries, _MOST)).astype(np.uint16)
