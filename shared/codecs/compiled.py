"""Inner loops as machine code where numba is installed, as the plain Python they are where it is not."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    from numba import njit
except ImportError:
    COMPILED = False
else:
    COMPILED = True
"""Whether functions are compiled: if so, they take numpy arrays where plain ones are faster with lists."""


def compiled(signature: str) -> Callable[[Function], Function]:
    """Compile a function for the types of `signature` when it is defined; numba keeps the code on disk."""

    def decorate(function: Function) -> Function:
        if not COMPILED:
            return function
        try:
            return cast(Function, njit(signature, cache=True)(function))
        except RuntimeError:  # there is no folder to keep it in
            return cast(Function, njit(signature)(function))

    return decorate


def inner(function: Function) -> Function:
    """Compile a function for whatever types its compiled callers give it."""
    return cast(Function, njit(function)) if COMPILED else function
