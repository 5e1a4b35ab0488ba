"""What held-out data have that is mostly a mistake: too few rows, class numbers with gaps, other units."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.samples import IGNORED, Dataset, join_names

FEW = 20
"""Fewer held-out samples say little: each is more than five percentage points of the accuracy."""

FAR, WIDE, NARROW = 3.0, 5.0, 0.1
"""In deviations of the held-out data: a mean so far off, or a deviation so large, hints at another unit. So
does a mean that is half as far off with a deviation so small."""

_CLASSES = 20
"""So many different whole numbers, at most, may be classes."""


def remarks(held_out: Dataset, *, chosen: bool = False) -> Iterator[str]:
    """Yield what may be wrong with the held-out data, and what to do. `chosen`: targets= is in their URI."""
    if (count := len(held_out)) < FEW:
        yield (
            f"samples to evaluate on: {count}, so that one is {100 / count:.0f}% of the accuracy; hold out "
            "some hundreds"
        )
    if held_out.description.columns:
        yield from _label_remarks(held_out, chosen)
        yield from _constant_columns(held_out)


def _label_remarks(held_out: Dataset, chosen: bool) -> Iterator[str]:
    description, y = held_out.description, held_out.y
    if description.numbers:
        mean, spread = description.target or (0.0, 1.0)
        values = np.unique(np.round(y.astype(np.float64) * spread + mean, 3))
        if not chosen and len(values) <= _CLASSES and (values == np.round(values)).all():
            shown = join_names([f"{value:g}" for value in values])
            yield (
                f"the label is a number to predict, and only {shown} occur; if these are classes, add "
                "&targets=classes"
            )
        return
    classes = description.labels or np.unique(y[y != IGNORED])
    if len(classes) == 1:
        yield (
            f"the label is {classes[0]} in every held-out row, so that there is nothing to learn; save rows "
            "of each class"
        )
    elif not description.labels and len(classes) and (outputs := int(classes[-1]) + 1) > len(classes):
        yield (
            f"the label is {len(classes)} different numbers up to {classes[-1]}; classes are numbered from "
            f"0 on, so the model needs {outputs:,} outputs: number them without gaps, or name them; if the "
            "label is a number to predict, add &targets=numbers"
        )


def _constant_columns(held_out: Dataset) -> Iterator[str]:
    description, x = held_out.description, held_out.x
    if not description.means or not isinstance(x, np.ndarray):
        return
    constant = (x == x[:1]).all(axis=0)
    for name, names, place in _columns(held_out):
        if len(names) < 2 and constant[place] and len(x) > 1:
            yield (
                f"{name} is the same in every held-out row, so that devices cannot scale it; save rows in "
                "which it varies, or name the columns to train on with &x="
            )


def other_units(held_out: Dataset, x: NDArray[np.float32]) -> Iterator[str]:
    """Yield what may be in another unit in x [n, inputs], a device's samples as models take them.

    A device's data may differ much for good reasons, so this is no error.
    """
    description = held_out.description
    if not description.means:
        return
    for place, (name, names, index) in enumerate(_columns(held_out)):
        mean, spread = float(x[:, index].mean(dtype=np.float64)), float(x[:, index].std(dtype=np.float64))
        shifted = abs(mean) > FAR or spread > WIDE or (abs(mean) > FAR / 2 and spread < NARROW)
        if names or not shifted or len(x) < 2:
            continue
        middle, unit = description.means[place], description.spreads[place]
        yield (
            f"{name} is {middle + mean * unit:.3g} on average in client.data, with a deviation "
            f"of {spread * unit:.2g}, and {middle:.3g} in the held-out data, with {unit:.2g}; is the unit "
            "the same?"
        )


def _columns(held_out: Dataset) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Yield (name, categories, index of its first input) of each column."""
    description, index = held_out.description, 0
    for place, name in enumerate(description.columns):
        names = description.categories[place] if description.categories else ()
        yield name, names, index
        index += max(1, len(names))
