"""Inner loops as machine code where numba is installed, as the plain Python they are where it is not.

Compiled, they take numpy arrays, and do not look for a division by zero; plain, they are faster with lists.
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
    """Compile a function for the types of `signature` when it is defined; numba keeps the code on disk."""

    def decorate(function: Function) -> Function:
        if not COMPILED:
            return function
        try:
            return cast(Function, njit(signature, cache=True, error_model="numpy")(function))
        except RuntimeError:  # there is no folder to keep it in
            return cast(Function, njit(signature, error_model="numpy")(function))

    return decorate


def inner(function: Function) -> Function:
    """Compile a function for whatever types its compiled callers give it."""
    return cast(Function, njit(error_model="numpy")(function)) if COMPILED else function


def spread(function: Function) -> Function:
    """The same, put into its callers wherever they call it: for a few lines that run all the time."""
    return cast(Function, njit(inline="always", error_model="numpy")(function)) if COMPILED else function


def handed(numbers: NDArray[Any]) -> Any:
    """`numbers` as such functions take them."""
    return numbers if COMPILED else numbers.tolist()


def _zeros(count: int) -> Any:
    return np.zeros(count, np.int64)


def _list_of_zeros(count: int) -> Any:
    return [0] * count


zeros: Callable[[int], list[int]] = inner(_zeros if COMPILED else _list_of_zeros)
"""So many integers, for a function to work with."""
