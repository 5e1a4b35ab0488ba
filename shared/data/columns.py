"""Conversion of table columns to x: by name, in the run's units, with categories and without gaps.

A column of k categories becomes k inputs: 1 for the sample's category and 0 for the others. An unknown or
missing category is all 0. A missing number is the run's mean.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.samples import Raw, join_names
from edgeflock.shared.model.description import LONGEST, MAX_CATEGORIES, Description

_FEW, _PART = 20, 0.5
"""More different texts than both limits (a number; a share of the samples) are not categories but names or
notes."""

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")

_REMEDY = "fill it in, remove the row, or add &missing=drop"


def categories_of(raw: Raw) -> tuple[tuple[str, ...], ...]:
    """The names of the categories of each column; () if no column has any. Raises ConfigError."""
    found = [_categories(raw, column) for column in range(len(raw.columns))]
    return tuple(found) if any(found) else ()


def _categories(raw: Raw, column: int) -> tuple[str, ...]:
    texts = raw.texts.get(column)
    if texts is None or not (names := texts.used_names()):
        return ()
    assert isinstance(raw.x, np.ndarray), "only tables have columns"
    sample, text = texts.first() or (0, "")
    numbers = int((~np.isnan(raw.x[:, column])).sum())
    decimals = [name for name in names if _DECIMAL_COMMA.fullmatch(name)]
    if numbers or decimals:
        text = decimals[0] if decimals and not numbers else text
        raise raw.error(
            f"{raw.columns[column]} is {text!r:.40}, not a number; "
            f"{_text_remedy(text)}{_column_remedy(raw, column)}",
            sample,
        )
    odd = next((name for name in names if len(name) > LONGEST or not name.isprintable()), None)
    if odd is not None or not _are_few(raw, names):
        raise raw.error(
            f"{raw.columns[column]} holds {len(names):,} different texts in {len(raw):,} rows, such as "
            f"{(odd or text)!r:.40}; categories are {MAX_CATEGORIES} at most, and fewer than half as many "
            f"as the rows{_column_remedy(raw, column)}",
            None,
        )
    return tuple(names)


def _text_remedy(text: str) -> str:
    """The remedy for a text that should be a number."""
    comma = _DECIMAL_COMMA.fullmatch(text)
    return (
        "if its comma stands before decimals, add &decimal=comma"
        if comma
        else "correct it, leave it empty (missing)"
    )


def _column_remedy(raw: Raw, column: int) -> str:
    """The remedy that avoids a column, as the end of a message."""
    rest = [name for place, name in enumerate(raw.columns) if place != column and _is_readable(raw, place)]
    if not rest:
        return ", or read it with your own function that converts it to numbers: package.module:function"
    return f", or name the columns to train on: &x={','.join(rest)}"


def _is_readable(raw: Raw, column: int) -> bool:
    """Whether a column holds numbers alone, or categories alone."""
    assert isinstance(raw.x, np.ndarray), "only tables have columns"
    some = not np.isnan(raw.x[:, column]).all()
    texts = raw.texts.get(column)
    if texts is None or not (names := texts.used_names()):
        return some
    return not (some or any(_DECIMAL_COMMA.fullmatch(name) for name in names)) and _are_few(raw, names)


def _are_few(raw: Raw, names: Sequence[str]) -> bool:
    """Whether texts are so few that they are categories."""
    return len(names) <= MAX_CATEGORIES and len(names) <= max(_FEW, _PART * len(raw))


def units_of(
    raw: Raw, categories: tuple[tuple[str, ...], ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return (means, deviations) of the columns, without missing values, in float32 as they travel.

    Constants and categories keep their unit. Raises ConfigError.
    """
    assert isinstance(raw.x, np.ndarray), "only tables are scaled"
    x = raw.x.astype(np.float64)
    for place, names in enumerate(categories):
        if names:
            x[:, place] = 0.0
    absent = np.isnan(x)
    if raw.missing == "error" or np.isinf(x).any():
        check_finite(raw, x, tuple(range(x.shape[1])))
    if (empty := np.flatnonzero(absent.all(axis=0))).size:
        remedy = _column_remedy(raw, int(empty[0]))
        raise raw.error(f"{raw.columns[empty[0]]} has no value in any row; leave it out{remedy}")
    return standard_units(x)


def standard_units(x: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return (means, deviations) of the columns of x in float32; NaN is not counted.

    A column that varies by rounding only counts as constant: its deviation is 1.
    """
    means = np.asarray(np.nanmean(x, axis=0, dtype=np.float64), np.float32)
    deviations = np.asarray(np.nanstd(x, axis=0, dtype=np.float64))
    varies = deviations > 1e-6 * np.maximum(1e-30, np.abs(means))
    spreads = np.where(varies, deviations, 1.0).astype(np.float32)
    return tuple(means.tolist()), tuple(spreads.tolist())


def complete(raw: Raw, description: Description | None) -> tuple[Raw, str]:
    """Return (the samples that can be trained on with `description`, a text on how gaps are handled).

    The text is empty if there are no gaps. Raises ConfigError if a column of the run is missing.
    """
    notes = [f"rows without a label, left out: {raw.unlabelled:,}"] if raw.unlabelled else []
    if raw.missing == "error" or not raw.columns or not isinstance(raw.x, np.ndarray):
        return raw, _sentence(raw, notes)
    lacking = np.zeros(len(raw), np.bool_)
    counts: dict[str, int] = {}
    unknown = ""
    for column, names in _run_columns(raw, description):
        gaps = np.isnan(raw.x[:, column])
        texts = raw.texts.get(column)
        if names:
            gaps = np.ones(len(raw), np.bool_) if texts is None else texts.category_indices(names) < 0
            if not unknown and texts is not None and (first := texts.first(gaps)) is not None:
                unknown = (
                    f"; {raw.columns[column]} is {first[1]!r:.40} in {raw.place(first[0])}, which is none of "
                    f"the run's {join_names(names)}"
                )
        elif texts is not None:
            gaps &= texts.codes < 0
        if gaps.any():
            counts[raw.columns[column]] = int(gaps.sum())
            lacking |= gaps
    if counts:
        shown = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        first_place = raw.place(int(np.flatnonzero(lacking)[0]))
        done = (
            "these rows are left out (missing=drop)"
            if raw.missing == "drop"
            else "a missing number counts as the run's mean, a missing category as none of the run's "
            "(&missing=drop leaves such rows out, &missing=error stops with an error)"
        )
        notes.append(
            f"{int(lacking.sum()):,} of {len(raw):,} rows lack a value, the first is {first_place} "
            f"({shown}){unknown}; {done}"
        )
    if raw.missing == "drop" and lacking.any():
        if lacking.all():
            raise raw.error(f"every row ({len(raw):,}) lacks a value; &missing=mean keeps them")
        raw = raw.select(np.flatnonzero(~lacking))
    return raw, _sentence(raw, notes)


def _sentence(raw: Raw, notes: list[str]) -> str:
    return f"{raw.source}: {'; '.join(notes)}" if notes else ""


def _run_columns(raw: Raw, description: Description | None) -> list[tuple[int, tuple[str, ...]]]:
    """(column of raw, its categories) of each column of the run."""
    if description is None or not description.columns:
        return [(column, ()) for column in range(len(raw.columns))]
    categories = description.categories or ((),) * len(description.columns)
    return [
        (column_of(raw, name), names) for name, names in zip(description.columns, categories, strict=True)
    ]


def inputs_of(raw: Raw, x: NDArray[np.float64], description: Description) -> NDArray[np.float32]:
    """Convert x [n, columns] of `raw` to the inputs of the run's models. A ConfigError names the row."""
    wanted = _run_columns(raw, description)
    chosen = [column for column, _ in wanted]
    numbers, places = x[:, chosen], {}
    for place, (column, names) in enumerate(wanted):
        if not names:
            continue
        texts = raw.texts.get(column)
        places[place] = np.full(len(raw), -1) if texts is None else texts.category_indices(names)
        if raw.missing == "error" and (unknown := np.flatnonzero(places[place] < 0)).size:
            raise raw.error(_unknown_category(raw, column, names, int(unknown[0])), int(unknown[0]))
    means = np.full(len(wanted), np.nan)
    if raw.missing == "mean" and description.means:
        means = np.array(description.means)
    filled = _fill_gaps(raw, numbers, chosen, means)
    plain = [place for place in range(len(wanted)) if place not in places]
    check_finite(raw, filled[:, plain], tuple(chosen[place] for place in plain))
    return features(filled, places, description)


def _fill_gaps(
    raw: Raw, numbers: NDArray[np.float64], columns: list[int], means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return `numbers` with the means where a cell has neither a number nor a text."""
    empty = np.isnan(numbers)
    for place, column in enumerate(columns):
        if (texts := raw.texts.get(column)) is not None:
            empty[:, place] &= texts.codes < 0
    return np.where(empty, means, numbers)


def _unknown_category(raw: Raw, column: int, names: tuple[str, ...], sample: int) -> str:
    texts = raw.texts.get(column)
    text = "" if texts is None or texts.codes[sample] < 0 else texts.names[texts.codes[sample]]
    state = f"is {text!r:.40}" if text else "is missing"
    return (
        f"{raw.columns[column]} {state}, and the run's categories are {join_names(names)}; correct it, "
        "remove the row, or leave out missing=error: then it counts as none of them"
    )


def features(
    numbers: NDArray[np.float64], places: Mapping[int, NDArray[np.int64]], description: Description
) -> NDArray[np.float32]:
    """Return the inputs of models: float32 [n, description.inputs].

    `numbers` is [n, columns], where NaN is the mean; `places` are those of categories, by column.
    """
    units = np.array(numbers, np.float64)
    if description.means:
        units = (units - np.array(description.means)) / np.array(description.spreads)
        units[np.isnan(units)] = 0.0
    if not description.categories:
        return np.ascontiguousarray(units, np.float32)
    x = np.zeros((len(units), description.inputs), np.float32)
    offset = 0
    for column, names in enumerate(description.categories):
        if names:
            rows = np.flatnonzero(places[column] >= 0)
            x[rows, offset + places[column][rows]] = 1.0
        else:
            x[:, offset] = units[:, column]
        offset += max(1, len(names))
    return x


def column_of(raw: Raw, name: str) -> int:
    """The index of the column of this name. Raises ConfigError."""
    if name not in raw.columns:
        raise raw.error(
            f"has no column {name!r}, which the run trains on; rename one of {join_names(raw.columns)}"
        )
    return raw.columns.index(name)


def check_finite(raw: Raw, x: NDArray[np.generic], columns: tuple[int, ...], name: str = "x") -> None:
    """Raise ConfigError for the first sample with NaN or infinity. `columns` maps x's columns to raw's."""
    if x.dtype.kind != "f" or np.isfinite(x).all():
        return
    sample, *rest = (int(index) for index in np.argwhere(~np.isfinite(x))[0])
    if not (columns and raw.columns):
        place = f"{name}{list(rest)}" if rest else name
        raise raw.error(f"{place} is {x[sample, *rest]}; leave the sample out, or fill it in", sample)
    column = columns[rest[0]]
    texts = raw.texts.get(column)
    if texts is not None and texts.codes[sample] >= 0:
        text = texts.names[texts.codes[sample]]
        raise raw.error(
            f"{raw.columns[column]} is {text!r:.40}, not a number; {_text_remedy(text)}, or remove the row",
            sample,
        )
    raise raw.error(f"{raw.columns[column]} is empty or no finite number; {_REMEDY}", sample)
