"""Selects entries of a gradient, codes them as an Update, and keeps the rest (AdaComp, ScaDLES, feedback).

    selection, memory = select(memory, gradient, layout, welcome, theta, sequence, base)
    update = encode_update(steps, selection, layout, sequence, base)
    memory = take_back(memory)              # only if it was refused

No I/O: a device's trainer holds the memory between steps, a Flower node in its context. The memory belongs to
one run; another run begins with SelectionMemory().
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.codecs import entries, sparse, values
from edgeflock.shared.errors import Diverged
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.messages import Update, Welcome
from edgeflock.shared.selection import (
    NormAverages,
    decay_of,
    decay_threshold,
    follow_norms,
    grow_fraction,
    is_sufficient,
    recall,
    remember,
    select_largest,
    select_significant,
)

_NOTHING: NDArray[np.int64] = np.zeros(0, np.int64)

_INTERVALS = 10
"""Updates over which `SelectionMemory.interval` is averaged."""


@dataclass(frozen=True, slots=True)
class SelectionMemory:
    """The state of earlier updates that the next selection needs."""

    corrected: NDArray[np.float32] | None = None
    """The gradient with the memory, at the last selection: float32 [P]. None at first or without feedback."""
    sent: NDArray[np.int64] | None = None
    """The indices of `corrected` that were sent; None: all of it."""
    norms: NormAverages | None = None
    """Norms of the gradients so far, if the run has a threshold."""
    base: int | None = None
    """The version that the last update was made from; None before the first."""
    interval: float = 0.0
    """The mean number of versions between two updates, over about the last ten."""
    intervals: int = 0
    """The number of intervals in that mean, ten at most."""

    def advance(self, base: int) -> "SelectionMemory":
        """Return the memory for the next update, made from version `base`."""
        if self.base is None:
            return replace(self, base=base)
        intervals = min(_INTERVALS, self.intervals + 1)
        interval = self.interval + (max(1, base - self.base) - self.interval) / intervals
        return replace(self, base=base, interval=interval, intervals=intervals)

    def without_entries(self) -> "SelectionMemory":
        """Return the memory without unsent entries. Only the device's interval remains."""
        return SelectionMemory(base=self.base, interval=self.interval, intervals=self.intervals)

    def remainder(self, decay: float) -> NDArray[np.float32] | None:
        """Return what is added to the next gradient: float32 [P], zero at sent entries; None: nothing."""
        if self.corrected is None:
            return None
        return remember(self.corrected, slice(None) if self.sent is None else self.sent, decay)


@dataclass(frozen=True, slots=True)
class Selection:
    """The entries to send, and how to code them."""

    gradient: NDArray[np.float32]
    """The gradient plus the remembered entries: float32 [P]."""
    positions: NDArray[np.int64] | None
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
    """Return the entries of `gradient` (float32 [P]) that the run of `welcome` asks for, and the new memory.

    `layout` is that of the P trained parameters, `theta` (float32 [P + B]) the gradient's model at version
    `base`, `sequence` the update's number. The memory assumes that the selection is sent. It does not share
    `gradient`, which may be overwritten.
    """
    if welcome.select >= 1 and welcome.significance is None:
        return Selection(gradient, None, welcome.indices, welcome.values), SelectionMemory()
    corrected = _correct(memory, gradient, welcome.feedback, base)
    memory = memory.advance(base)
    if welcome.select_interval:
        fraction = grow_fraction(welcome.select, memory.interval, welcome.select_interval, layout)
        welcome = replace(welcome, select=fraction)
    selected = select_entries(corrected, layout, welcome, theta[: layout.size], sequence)
    selection = Selection(corrected, selected, welcome.indices, welcome.values)
    norms = None
    if welcome.threshold:
        norms = follow_norms(memory.norms, corrected, selected)
        if not is_sufficient(norms, welcome.threshold):
            selection = _whole(selection)
    if not welcome.feedback:
        return selection, replace(memory, corrected=None, sent=None, norms=norms)
    kept = corrected.copy() if corrected is gradient else corrected
    return selection, replace(memory, corrected=kept, sent=selection.positions, norms=norms)


def select_entries(
    corrected: NDArray[np.float32],
    layout: Layout,
    welcome: Welcome,
    parameters: NDArray[np.float32],
    sequence: int,
) -> NDArray[np.int64]:
    """Return the entries of `corrected` to send, strictly increasing. It and `parameters` are float32 [P]."""
    if welcome.significance is None:
        return select_largest(corrected, layout, welcome.select, welcome.balance)
    threshold = decay_threshold(welcome.significance, sequence) if welcome.decays else welcome.significance
    return select_significant(corrected, parameters, threshold)


def accumulate(
    memory: SelectionMemory, gradient: NDArray[np.float32], feedback: float, base: int
) -> tuple[NDArray[np.float32], SelectionMemory]:
    """Return (`gradient` with the memory, the memory that has all of it): float32 [P], not to be changed.

    Without feedback the memory stays empty. The entries are unsent until `mark_sent`.
    """
    corrected = _correct(memory, gradient, feedback, base)
    if corrected is gradient:
        corrected = gradient.copy()  # a backend reuses its gradient's memory
    memory = memory.advance(base)
    return corrected, replace(memory, corrected=corrected if feedback else None, sent=_NOTHING)


def mark_sent(memory: SelectionMemory, positions: NDArray[np.int64]) -> SelectionMemory:
    """Return the memory with the entries at `positions`, strictly increasing, as sent."""
    return replace(memory, sent=positions)


def _correct(
    memory: SelectionMemory, gradient: NDArray[np.float32], feedback: float, base: int
) -> NDArray[np.float32]:
    """Return the gradient plus what is left of the memory at version `base`: [P]."""
    passed = 0 if memory.base is None else base - memory.base
    return recall(memory.remainder(decay_of(feedback, passed)), gradient)


def take_back(memory: SelectionMemory) -> SelectionMemory:
    """Mark the last update's entries as unsent, since it was refused."""
    return replace(memory, sent=_NOTHING)


def _whole(selection: Selection) -> Selection:
    """Select the whole gradient if a selection loses too much. Codings of means alone would lose as much."""
    if not values.CODINGS[values.CODINGS.name_of(selection.values)].means_only:
        return replace(selection, positions=None)
    return replace(selection, positions=None, indices=sparse.GOLOMB, values=values.CODINGS["codebook4"].mode)


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """The result of the local steps of one update, or of a single step."""

    loss: float
    """Mean over the batches."""
    gradient: NDArray[np.float32]
    """The sum of their directions (local_optimizer.py), which are mostly their gradients: float32 [P]."""
    statistics: NDArray[np.float32]
    """The running statistics, the batches' mean: float32 [B]."""
    samples: int


def encode_update(
    steps: LocalSteps, selection: Selection, layout: Layout, sequence: int, base: int
) -> Update:
    """Encode the `selection` of the result of `steps` from the model at version `base`.

    `layout` is that of the P trained parameters. The running statistics follow the values. Raises Diverged.
    """
    where = selection.positions
    kept = selection.gradient if where is None else selection.gradient[where]
    if not np.isfinite(kept).all():  # single gradients are finite; sums may not be
        raise Diverged("the update holds NaN or infinity: lower coordination.learning_rate or local.rate")
    coded = entries.encode(kept, where, layout, selection.indices, selection.values)
    return Update(
        sequence=sequence,
        base=base,
        index_mode=coded.index_mode,
        value_mode=coded.value_mode,
        count=kept.size,
        indices=coded.indices,
        values=coded.values + values.encode_statistics(steps.statistics),
        loss=steps.loss,
        samples=steps.samples,
        pull=True,
    )
