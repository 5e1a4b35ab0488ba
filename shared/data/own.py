"""Data from a user's own function: package.module:function.

It returns (x, y). y is an array or a list of class numbers, class names or numbers to predict. x is an array,
or an object that gives sample i as x[i]; its samples are read one at a time and not kept. The URI's options
are its arguments, as text. An argument `split`, if it has one, gets "train" or "test".
"""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.data.samples import Raw, Shape, Unread
from edgeflock.shared.errors import ConfigError

_NAMED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_own(uri: str) -> bool:
    """Whether `uri` may be the name of a function."""
    return _NAMED.fullmatch(uri.partition("?")[0]) is not None


def _items(source: str, x: Any, count: int) -> Unread:
    """Return the samples of an object x whose sample i is x[i]."""

    def item(number: int) -> NDArray[np.float32]:
        try:
            found = np.asarray(x[number])
        except Exception as error:  # user code may raise anything
            raise ConfigError(f"data {source!r}: x[{number}]: {error!r}") from error
        if found.dtype.kind not in "biuf":
            raise ConfigError(f"data {source!r}: x[{number}] is of {found.dtype}, not of numbers")
        units = np.float32(255 if found.dtype == np.uint8 else 1)
        found = found.astype(np.float32) / units
        return found[np.newaxis] if units > 1 and found.ndim == 2 else found

    def opened(number: int, shape: Shape) -> tuple[Callable[[int], NDArray[np.float32]], tuple[int, ...]]:
        first = item(number).shape
        if shape is not None and first != shape:
            raise ConfigError(
                f"data {source!r}: samples have the shape {list(first)}, and those of the run "
                f"{list(shape)} (model.data or model.input of the server)"
            )

        def read(number: int) -> NDArray[np.float32]:
            found = item(number)
            if found.shape != first or not np.isfinite(found).all():
                reason = (
                    "holds NaN or infinity" if found.shape == first else f"has the shape {list(found.shape)}"
                )
                raise ConfigError(
                    f"data {source!r}: x[{number}] {reason}, x[0] has {list(first)}; correct it"
                )
            return found

        return read, first

    return Unread(np.arange(count), opened)


def read_own(name: str, split: str, options: Mapping[str, str]) -> Raw:
    """Read the result of the function `name`. Raises ConfigError."""
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
        arguments = {"split": split} if "split" in inspect.signature(function).parameters else {}
        result = function(**{**arguments, **options})
    except ConfigError:
        raise
    except Exception as error:  # user code may raise anything
        raise ConfigError(f"data {name!r}: {type(error).__name__}: {error}") from error
    if not isinstance(result, tuple) or len(result) != 2:
        raise ConfigError(f"data {name!r}: returned a {type(result).__name__}; it must return (x, y)")
    x, y = result[0], np.asarray(result[1])
    counts = [_count(one) for one in (x, y)]
    if counts[0] != counts[1] or counts[0] < 1:
        raise ConfigError(
            f"data {name!r}: x has {counts[0]} samples and y {counts[1]}; both must have the same number, "
            "one or more"
        )
    y = y.astype(np.str_) if y.dtype.kind == "O" and all(isinstance(one, str) for one in y) else y
    if isinstance(x, list | tuple):
        try:
            x = np.asarray(x)
        except ValueError as error:
            raise ConfigError(f"data {name!r}: x is no array of numbers: {error}") from error
    if isinstance(x, np.ndarray):
        return Raw(name, x, y)
    return Raw(name, _items(name, x, len(y)), y)


def _count(samples: Any) -> int:
    """The number of samples; 0 if they have no length."""
    try:
        return len(samples)
    except TypeError:
        return 0
