"""Functions that a program hands in to be told something, or to score the model."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from edgeflock.shared.errors import ConfigError

News = TypeVar("News")

Metrics = Sequence[str] | Mapping[str, Callable[..., Any]]
"""Names, or functions and torchmetrics' metrics by names of the program's own."""


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


def scored_by(metrics: Metrics, where: str) -> tuple[list[str], dict[str, Callable[..., Any]]]:
    """(names as of model.metrics, functions by their names) of what `where` was given. Raises ConfigError."""
    given: object = metrics
    if isinstance(metrics, Mapping):
        return [], dict(metrics)
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(
            f'edgeflock.{where}=...) is a {type(given).__name__}; give ["f1", "topk(k=3)"], or a dict of '
            "names to functions of (outputs, targets)"
        )
    return list(metrics), {}
