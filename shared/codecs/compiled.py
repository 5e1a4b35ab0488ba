"""Inner loops, compiled to machine code if numba is installed and plain Python otherwise.

Compiled functions take numpy arrays and skip the check for division by zero. Plain ones prefer lists.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    from numba import njit
except ImportError:
    COMPILED = False
else:
    COMPILED = True


def compiled(signature: str) -> Callable[[Function], Function]:
    """Compile a function for the types of `signature` at its definition; numba caches the code on disk."""

    def decorate(function: Function) -> Function:
        if not COMPILED:
            return function
        try:
            return cast(Function, njit(signature, cache=True, error_model="numpy")(function))
        except RuntimeError:  # there is no cache folder
            return cast(Function, njit(signature, error_model="numpy")(function))

    return decorate


def inner(function: Function) -> Function:
    """Compile a function for the argument types of its compiled callers."""
    return cast(Function, njit(error_model="numpy")(function)) if COMPILED else function


def inlined(function: Function) -> Function:
    """Compile a function inline into its callers: for a few lines that run very often."""
    return cast(Function, njit(inline="always", error_model="numpy")(function)) if COMPILED else function


def to_native(numbers: NDArray[Any]) -> Any:
    """Convert `numbers` to the type that these functions take: an array if compiled, else a list."""
    return numbers if COMPILED else numbers.tolist()


def _zeros(count: int) -> Any:
    return np.zeros(count, np.int64)


def _list_of_zeros(count: int) -> Any:
    return [0] * count


zeros: Callable[[int], list[int]] = inner(_zeros if COMPILED else _list_of_zeros)
"""Return `count` zeros as working memory for a function."""
