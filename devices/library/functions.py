"""Functions that a program hands in to be told something."""

import inspect
from collections.abc import Callable
from typing import TypeVar

from edgeflock.shared.errors import ConfigError

News = TypeVar("News")


def told_by(function: Callable[[News], object] | None, where: str) -> Callable[[News], object] | None:
    """`function`, which was given to `where`. Raises ConfigError if it is none, or async."""
    given: object = function
    if given is not None and not callable(given):
        kind = type(given).__name__
        raise ConfigError(f"edgeflock.{where}=...) is a {kind}; give a function of one argument")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"edgeflock.{where}=...) is async, and nothing waits for it; give a plain function, which may "
            "start a task"
        )
    return function
