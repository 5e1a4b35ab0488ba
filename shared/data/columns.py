"""Conversion of table columns to x: by name, in the run's units, with categories and without gaps.

A column of k categories becomes k inputs: 1 for the sample's category and 0 for the others. An unknown or
missing category is all 0. A missing number is the run's mean.
"""

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.samples import Raw, listed
from edgeflock.shared.model.description import LONGEST, MOST_CATEGORIES, Description

_FEW, _PART = 20, 0.5
"""More different texts than both limits (a number; a share of the samples) are not categories but names or
notes."""

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")

_REMEDY = "fill it in, remove the row, or say &missing=drop"


def categories_of(raw: Raw) -> tuple[tuple[str, ...], ...]:
    """The names of the categories of each column; () if no column has any. Raises ConfigError."""
    found = [_categories(raw, column) for column in range(len(raw.columns))]
    return tuple(found) if any(found) else ()


def _categories(raw: Raw, column: int) -> tuple[str, ...]:
    texts = raw.texts.get(column)
    if texts is None or not (names := texts.there()):
        return ()
    assert isinstance(raw.x, np.ndarray), "only tables have columns"
    sample, text = texts.first() or (0, "")
    numbers = int((~np.isnan(raw.x[:, column])).sum())
    decimals = [name for name in names if _DECIMAL_COMMA.fullmatch(name)]
    if numbers or decimals:
        text = decimals[0] if decimals and not numbers else text
        raise raw.wrong(
            f"{raw.columns[column]} is {text!r:.40}, not a number; {_mend(text)}{_others(raw, column)}",
            sample,
        )
    odd = next((name for name in names if len(name) > LONGEST or not name.isprintable()), None)
    if odd is not None or len(names) > MOST_CATEGORIES or len(names) > max(_FEW, _PART * len(raw)):
        raise raw.wrong(
            f"{raw.columns[column]} holds {len(names):,} different texts in {len(raw):,} rows, such as "
            f"{(odd or text)!r:.40}; categories are {MOST_CATEGORIES} at most, and fewer than half as many "
            f"as the rows{_others(raw, column)}",
            None,
        )
    return tuple(names)


def _mend(text: str) -> str:
    """The remedy for a text that should be a number."""
    comma = _DECIMAL_COMMA.fullmatch(text)
    return (
        "if its comma stands before decimals, say &decimal=comma"
        if comma
        else "mend it, leave it empty (missing)"
    )


def _others(raw: Raw, column: int) -> str:
    """The remedy that avoids a column, as the end of a message."""
    rest = [name for place, name in enumerate(raw.columns) if place != column and place not in raw.texts]
    if not rest:
        return ", or read it by a function of yours that makes numbers of it: package.module:function"
    return f", or name the columns to train on: &x={','.join(rest)}"


def units_of(
    raw: Raw, categories: tuple[tuple[str, ...], ...]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(means, deviations) of the columns, without missing values, in float32 as they travel. Constants and
    categories keep their unit. Raises ConfigError."""
    assert isinstance(raw.x, np.ndarray), "only tables are scaled"
    x = raw.x.astype(np.float64)
    for place, names in enumerate(categories):
        if names:
            x[:, place] = 0.0
    absent = np.isnan(x)
    if raw.missing == "error" or np.isinf(x).any():
        check_finite(raw, x, tuple(range(x.shape[1])))
    if (empty := np.flatnonzero(absent.all(axis=0))).size:
        raise raw.wrong(
            f"{raw.columns[empty[0]]} has no value in any row; leave it out{_others(raw, int(empty[0]))}"
        )
    return standard(x)


def standard(x: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(means, deviations) of the columns of x in float32; NaN is not counted. A column that varies by
    rounding only counts as constant: its deviation is 1."""
    means = np.asarray(np.nanmean(x, axis=0, dtype=np.float64), np.float32)
    deviations = np.asarray(np.nanstd(x, axis=0, dtype=np.float64))
    varies = deviations > 1e-6 * np.maximum(1e-30, np.abs(means))
    spreads = np.where(varies, deviations, 1.0).astype(np.float32)
    return tuple(means.tolist()), tuple(spreads.tolist())


def complete(raw: Raw, described: Description | None) -> tuple[Raw, str]:
    """Return (the samples that can be trained on as `described`, a text on how gaps are handled).

    The text is empty if there are no gaps. Raises ConfigError if a column of the run is missing.
    """
    told = [f"{raw.unlabelled:,} rows without a label are left out"] if raw.unlabelled else []
    if raw.missing == "error" or not raw.columns or not isinstance(raw.x, np.ndarray):
        return raw, _sentence(raw, told)
    lacking = np.zeros(len(raw), np.bool_)
    counts: dict[str, int] = {}
    unknown = ""
    for column, names in _wanted(raw, described):
        gaps = np.isnan(raw.x[:, column])
        texts = raw.texts.get(column)
        if names:
            gaps = np.ones(len(raw), np.bool_) if texts is None else texts.within(names) < 0
            if not unknown and texts is not None and (first := texts.first(gaps)) is not None:
                unknown = (
                    f"; {raw.columns[column]} is {first[1]!r:.40} in {raw.place(first[0])}, which is none of "
                    f"the run's {listed(names)}"
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
            else "a number that is missing counts as the run's mean, a category as none of the run's "
            "(&missing=drop leaves such rows out, &missing=error ends)"
        )
        told.append(
            f"{int(lacking.sum()):,} of {len(raw):,} rows lack a value, the first is {first_place} "
            f"({shown}){unknown}; {done}"
        )
    if raw.missing == "drop" and lacking.any():
        if lacking.all():
            raise raw.wrong(f"each of the {len(raw):,} rows lacks a value; &missing=mean keeps them")
        raw = raw.chosen(np.flatnonzero(~lacking))
    return raw, _sentence(raw, told)


def _sentence(raw: Raw, told: list[str]) -> str:
    return f"{raw.source}: {'; '.join(told)}" if told else ""


def _wanted(raw: Raw, described: Description | None) -> list[tuple[int, tuple[str, ...]]]:
    """(column of raw, its categories) of each column of the run."""
    if described is None or not described.columns:
        return [(column, ()) for column in range(len(raw.columns))]
    categories = described.categories or ((),) * len(described.columns)
    return [(column_of(raw, name), names) for name, names in zip(described.columns, categories, strict=True)]


def inputs_of(raw: Raw, x: NDArray[np.float64], described: Description) -> NDArray[np.float32]:
    """Convert x [n, columns] of `raw` to the inputs of the run's models. Raises ConfigError that names the
    row."""
    wanted = _wanted(raw, described)
    chosen = [column for column, _ in wanted]
    numbers, places = x[:, chosen], {}
    for place, (column, names) in enumerate(wanted):
        if not names:
            continue
        texts = raw.texts.get(column)
        places[place] = np.full(len(raw), -1) if texts is None else texts.within(names)
        if raw.missing == "error" and (unknown := np.flatnonzero(places[place] < 0)).size:
            raise raw.wrong(_unknown(raw, column, names, int(unknown[0])), int(unknown[0]))
    means = np.full(len(wanted), np.nan)
    if raw.missing == "mean" and described.means:
        means = np.array(described.means)
    filled = _filled(raw, numbers, chosen, means)
    plain = [place for place in range(len(wanted)) if place not in places]
    check_finite(raw, filled[:, plain], tuple(chosen[place] for place in plain))
    return features(filled, places, described)


def _filled(
    raw: Raw, numbers: NDArray[np.float64], columns: list[int], means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return `numbers` with the means where a cell has neither a number nor a text."""
    empty = np.isnan(numbers)
    for place, column in enumerate(columns):
        if (texts := raw.texts.get(column)) is not None:
            empty[:, place] &= texts.codes < 0
    return np.where(empty, means, numbers)


def _unknown(raw: Raw, column: int, names: tuple[str, ...], sample: int) -> str:
    texts = raw.texts.get(column)
    text = "" if texts is None or texts.codes[sample] < 0 else texts.names[texts.codes[sample]]
    is_what = f"is {text!r:.40}" if text else "is missing"
    return (
        f"{raw.columns[column]} {is_what}, and the run's categories are {listed(names)}; correct it, remove "
        "the row, or leave out missing=error: then it counts as none of them"
    )


def features(
    numbers: NDArray[np.float64], places: Mapping[int, NDArray[np.int64]], described: Description
) -> NDArray[np.float32]:
    """Return the inputs of models for `numbers` [n, columns], where NaN is the mean, and `places` of
    categories by column: float32 [n, described.inputs]."""
    units = np.array(numbers, np.float64)
    if described.means:
        units = (units - np.array(described.means)) / np.array(described.spreads)
        units[np.isnan(units)] = 0.0
    if not described.categories:
        return np.ascontiguousarray(units, np.float32)
    x = np.zeros((len(units), described.inputs), np.float32)
    at = 0
    for column, names in enumerate(described.categories):
        if names:
            known = np.flatnonzero(places[column] >= 0)
            x[known, at + places[column][known]] = 1.0
        else:
            x[:, at] = units[:, column]
        at += max(1, len(names))
    return x


def column_of(raw: Raw, name: str) -> int:
    """The index of the column of this name. Raises ConfigError."""
    if name not in raw.columns:
        raise raw.wrong(f"has no column {name!r}, which the run trains on; it has {listed(raw.columns)}")
    return raw.columns.index(name)


def check_finite(raw: Raw, x: NDArray[np.generic], columns: tuple[int, ...], name: str = "x") -> None:
    """Raise ConfigError for the first sample with NaN or infinity. `columns` maps the columns of x to
    raw's."""
    if x.dtype.kind != "f" or np.isfinite(x).all():
        return
    sample, *rest = (int(index) for index in np.argwhere(~np.isfinite(x))[0])
    if not (columns and raw.columns):
        place = f"{name}{list(rest)}" if rest else name
        raise raw.wrong(f"{place} is {x[sample, *rest]}; leave the sample out, or fill it in", sample)
    column = columns[rest[0]]
    texts = raw.texts.get(column)
    if texts is not None and texts.codes[sample] >= 0:
        text = texts.names[texts.codes[sample]]
        raise raw.wrong(
            f"{raw.columns[column]} is {text!r:.40}, not a number; {_mend(text)}, or remove the row", sample
        )
    raise raw.wrong(f"{raw.columns[column]} is empty or no finite number; {_REMEDY}", sample)
