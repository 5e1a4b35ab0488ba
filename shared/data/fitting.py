"""Description of a run's samples, and their conversion to it. An error names the row."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data import columns
from edgeflock.shared.data.samples import IGNORED, Dataset, Raw, Text, join_names, to_float32
from edgeflock.shared.model.description import LONGEST, MAX_NAMES, Description, need_scaling
from edgeflock.shared.model.fields import Fields, Inputs


def describe(raw: Raw, *, targets: bool = False) -> Description:
    """Return the description that others need to read data as `raw` is read. Raises ConfigError.

    `targets`: whether numbers to predict are scaled, if inputs are or if they are far from mean 0 and
    deviation 1.
    """
    categories = columns.categories_of(raw)
    numbers = raw.are_numbers
    labels: tuple[str, ...] = ()
    if raw.y.dtype.kind == "U" and not numbers:
        labels = tuple(sorted(set(raw.y.ravel().tolist())))
        if len(labels) > MAX_NAMES or any(
            not 0 < len(label) <= LONGEST or not label.isprintable() for label in labels
        ):
            raise raw.error(
                f"the label has {len(labels)} different texts, such as {labels[-1]!r:.40}; classes are "
                f"{MAX_NAMES} at most, of 1 to {LONGEST} printable characters: is it the right column?"
            )
    means, spreads = columns.units_of(raw, categories) if raw.scale else ((), ())
    target: tuple[float, ...] = ()
    if targets and numbers and raw.scale is not False and len(raw):
        (mean,), (spread,) = columns.standard_units(_numbers(raw).reshape(-1, 1).astype(np.float64))
        if raw.scale or need_scaling(mean, spread):
            target = mean, spread
    return Description(raw.columns, means, spreads, labels, numbers, target, categories)


def read_as(
    raw: Raw, description: Description | None = None, *, targets: bool = False
) -> tuple[Dataset, str]:
    """Convert `raw` to `description`, or to its own; `targets` is that of `describe`. Raises ConfigError.

    Returns (the data, a text on how gaps are handled; "" if there are none).
    """
    if description is None:
        if raw.missing == "drop":
            raw, message = columns.complete(
                raw, Description(raw.columns, categories=columns.categories_of(raw))
            )
            return fit(raw, describe(raw, targets=targets)), message
        description = describe(raw, targets=targets)
    raw, message = columns.complete(raw, description)
    return fit(raw, description), message


def fit(raw: Raw, description: Description | None, shape: tuple[int, ...] | None = None) -> Dataset:
    """Convert `raw` for training. Raises ConfigError that names the row and the remedy.

    `description` and `shape` (of a sample's x) come from the run; with None numbers stay as they are.
    """
    if description is None:
        description = Description(raw.columns, numbers=raw.are_numbers)
    return Dataset(inputs_of(raw, description, shape), targets_of(raw, description), description=description)


def inputs_of(raw: Raw, description: Description, shape: tuple[int, ...] | None = None) -> Inputs:
    """Convert x of `raw`, for a model that takes samples of `shape` (None: any). Raises ConfigError."""
    if isinstance(raw.x, Fields):
        return _convert_fields(raw, raw.x)
    if not isinstance(raw.x, np.ndarray):
        return raw.x.read_as(shape)
    x = _scale_inputs(raw, raw.x, description)
    if shape is not None and x.shape[1:] != shape:
        raise raw.error(
            f"samples have the shape {list(x.shape[1:])}, and those of the run {list(shape)} (model.data or "
            "model.input of the server); name data of that shape"
        )
    return x


def _scale_inputs(raw: Raw, x: NDArray[np.generic], description: Description) -> NDArray[np.float32]:
    if x.dtype.kind not in "biuf":
        raise raw.error(f"x is of {x.dtype}, not of numbers; store it as float32 or uint8")
    if raw.columns and description.columns:
        return columns.inputs_of(raw, x.astype(np.float64, copy=False), description)
    if description.categories:
        raise raw.error("has no names of columns, but the run has columns of categories; name a table")
    if description.means and x.shape[1:] != (len(description.means),):
        raise raw.error(
            f"samples have the shape {list(x.shape[1:])}, and those of the run {len(description.means)} "
            "numbers"
        )
    columns.check_finite(raw, x, ())
    if not description.means:
        return to_float32(x)
    units = (x - np.array(description.means)) / np.array(description.spreads)
    return np.ascontiguousarray(units, np.float32)


def _convert_fields(raw: Raw, x: Fields) -> Fields:
    """Convert fields like a single x, but integers and booleans become int64."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, array in x.items():
        if array.dtype.kind not in "biuf":
            raise raw.error(f"x.{name} is of {array.dtype}, not of numbers; store it as float32 or int64")
        columns.check_finite(raw, array, (), f"x.{name}")
        numbers = array.dtype == np.uint8 or array.dtype.kind == "f"
        arrays[name] = to_float32(array) if numbers else np.ascontiguousarray(array, np.int64)
    return Fields(arrays)


def targets_of(raw: Raw, description: Description) -> NDArray[np.int64] | NDArray[np.float32]:
    """Convert y to the run's targets. Raises ConfigError that names the row."""
    y = _numbers(raw)
    if description.labels:
        return _class_numbers(raw, y.astype(np.str_), description.labels)
    if y.dtype.kind == "U":
        sample = next(index for index, label in enumerate(y.tolist()) if not _is_number(label))
        kind = "numbers" if description.numbers else "numbers of classes"
        raise raw.error(
            f"the label is {str(y[sample])!r:.40}, and the run's are {kind}; correct it, or use names of "
            "classes in the server's held-out data (model.data), too",
            sample,
        )
    if description.numbers:
        return scale_targets(y, description)
    classes = y.astype(np.int64)
    wrong = (classes != y) | ((classes < 0) & (classes != IGNORED))
    if wrong.any():
        sample = int(np.argwhere(wrong)[0][0])
        raise raw.error(
            f"the label is {y[tuple(np.argwhere(wrong)[0])]}, and classes are 0, 1, ...; correct it, or if "
            "it is a number to predict, add targets=numbers to the server's model.data",
            sample,
        )
    return classes


def scale_targets(y: NDArray[np.generic], description: Description) -> NDArray[np.float32]:
    """Scale numbers to predict as the run does: (y - mean) / deviation, if it has these."""
    if not description.target:
        return y.astype(np.float32)
    mean, spread = description.target
    return ((y.astype(np.float64) - mean) / spread).astype(np.float32)


def _numbers(raw: Raw) -> NDArray[np.generic]:
    """Return y. Raises ConfigError if it is neither finite numbers nor text."""
    y = raw.y
    if y.dtype.kind not in "biufU":
        raise raw.error(f"y is of {y.dtype}, not of numbers or text; store it as int64, float32 or str")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        sample = int(np.argwhere(~np.isfinite(y))[0][0])
        raise raw.error("the label is empty or no finite number; fill it in, or remove the row", sample)
    return y


def _is_number(label: object) -> bool:
    try:
        return math.isfinite(float(str(label)))
    except ValueError:
        return False


def _class_numbers(raw: Raw, y: Text, labels: tuple[str, ...]) -> NDArray[np.int64]:
    """The class number of each name."""
    numbers = {label: number for number, label in enumerate(labels)}
    names, inverse = np.unique(y, return_inverse=True)
    classes = np.array([numbers.get(str(label), -1) for label in names], np.int64)[inverse].reshape(y.shape)
    if (classes < 0).any():
        place = tuple(np.argwhere(classes < 0)[0])
        raise raw.error(
            f"the label is {str(y[place])!r:.40}, and the run's classes are {join_names(labels)}: "
            "correct it, or add it to the server's held-out data (model.data) and begin another run",
            int(place[0]),
        )
    return classes
