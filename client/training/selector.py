"""What of a gradient to send, and the memory of what was left out (AdaComp, ScaDLES, error feedback).

    selection, memory = select(memory, gradient, layout, welcome, theta, sequence, base)
    ...                                     # the update is encoded and pushed
    memory = take_back(memory)              # only if it was refused

Pure: a device's trainer holds the memory between two steps, a Flower node keeps it in its context between two
messages. The memory belongs to one run; another run begins with Memory().
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import sparse, values
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Welcome
from edgeflock.shared.selection.adaptive import NormAverages, follow, will_do
from edgeflock.shared.selection.feedback import decay_of, recall, remember
from edgeflock.shared.selection.largest import grown, select_largest
from edgeflock.shared.selection.significance import decayed, select_significant

_NOTHING: NDArray[np.int64] = np.zeros(0, np.int64)

_INTERVALS = 10
"""Updates over which a device knows how often it comes."""


@dataclass(frozen=True, slots=True)
class SelectionMemory:
    """What must be known of the updates before to select the next one."""

    corrected: NDArray[np.float32] | None = None
    """What the last update was selected from: float32 [P]. None before the first, and without feedback."""
    sent: NDArray[np.int64] | None = None
    """The indices of `corrected` that are on their way; None: all of it."""
    norms: NormAverages | None = None
    """Of the gradients so far, if the run has a threshold."""
    base: int | None = None
    """The version that the last update was made from; None before the first."""
    interval: float = 0.0
    """The mean number of versions between two updates, of the last ten or so, and"""
    intervals: int = 0
    """of how many it is."""

    def after(self, base: int) -> "SelectionMemory":
        """When the next update is made from version `base`."""
        if self.base is None:
            return replace(self, base=base)
        intervals = min(_INTERVALS, self.intervals + 1)
        interval = self.interval + (max(1, base - self.base) - self.interval) / intervals
        return replace(self, base=base, interval=interval, intervals=intervals)

    def forgotten(self) -> "SelectionMemory":
        """Without what was not sent: how often the device comes is all that is left."""
        return SelectionMemory(base=self.base, interval=self.interval, intervals=self.intervals)

    def left_out(self, decay: float) -> NDArray[np.float32] | None:
        """What the next gradient gets on top: float32 [P], zero at what was sent; None if nothing."""
        if self.corrected is None:
            return None
        return remember(self.corrected, slice(None) if self.sent is None else self.sent, decay)


@dataclass(frozen=True, slots=True)
class Selection:
    """What an update is to hold."""

    gradient: NDArray[np.float32]
    """With what is remembered added: float32 [P]."""
    where: NDArray[np.int64] | None
    """The entries to send, strictly increasing; None: all of them."""
    indices: int
    values: int
    """The modes to code them in."""


def select(
    memory: SelectionMemory,
    gradient: NDArray[np.float32],
    layout: Layout,
    welcome: Welcome,
    theta: NDArray[np.float32],
    sequence: int,
    base: int,
) -> tuple[Selection, SelectionMemory]:
    """What of `gradient` (float32 [P]) to send as the run of `welcome` asks, and what to know next time.

    `layout` is that of the P trained parameters, `theta` (float32 [P + B]) the model that the gradient is of,
    at version `base`, `sequence` the update's number. The memory takes the selection for sent; it does not
    share `gradient`, which may be overwritten.
    """
    if welcome.select >= 1 and welcome.significance is None:
        return Selection(gradient, None, welcome.indices, welcome.values), SelectionMemory()
    passed = 0 if memory.base is None else base - memory.base
    corrected = recall(memory.left_out(decay_of(welcome.feedback, passed)), gradient)
    memory = memory.after(base)
    if welcome.select_interval:
        fraction = grown(welcome.select, memory.interval, welcome.select_interval, layout)
        welcome = replace(welcome, select=fraction)
    selected = chosen(corrected, layout, welcome, theta[: layout.size], sequence)
    selection = Selection(corrected, selected, welcome.indices, welcome.values)
    norms = None
    if welcome.threshold:
        norms = follow(memory.norms, corrected, selected)
        if not will_do(norms, welcome.threshold):
            selection = _whole(selection)
    if not welcome.feedback:
        return selection, replace(memory, corrected=None, sent=None, norms=norms)
    kept = corrected.copy() if corrected is gradient else corrected
    return selection, replace(memory, corrected=kept, sent=selection.where, norms=norms)


def chosen(
    corrected: NDArray[np.float32],
    layout: Layout,
    welcome: Welcome,
    parameters: NDArray[np.float32],
    sequence: int,
) -> NDArray[np.int64]:
    """Which entries of `corrected` to send, of `parameters` (both float32 [P]): strictly increasing."""
    if welcome.significance is None:
        return select_largest(corrected, layout, welcome.select, welcome.balance)
    threshold = decayed(welcome.significance, sequence) if welcome.decays else welcome.significance
    return select_significant(corrected, parameters, threshold)


def take_back(memory: SelectionMemory) -> SelectionMemory:
    """The last update was refused: its entries count as left out, too."""
    return replace(memory, sent=_NOTHING)


def _whole(selection: Selection) -> Selection:
    """All of a gradient whose selection loses too much: signs alone would lose as much."""
    if not values.CODINGS[values.name_of(selection.values)].means_only:
        return replace(selection, where=None)
    return replace(selection, where=None, indices=sparse.GOLOMB, values=values.CODINGS["codebook4"].mode)
