"""Callbacks and metrics that a program passes."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from edgeflock.shared.errors import ConfigError

News = TypeVar("News")

Metrics = Sequence[str] | Mapping[str, Callable[..., Any]]
"""Names of metrics, or the program's own names with functions and torchmetrics' metrics."""


def told_by(function: Callable[[News], object] | None, where: str) -> Callable[[News], object] | None:
    """Return `function`, an argument of `where`. Raises ConfigError if it is not callable, or async."""
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
    """Return (names for model.metrics, functions by name) of the argument of `where`. Raises ConfigError."""
    given: object = metrics
    if isinstance(metrics, Mapping):
        return [], dict(metrics)
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(
            f'edgeflock.{where}=...) is a {type(given).__name__}; give ["f1", "topk(k=3)"], or a dict of '
            "names to functions of (outputs, targets)"
        )
    return list(metrics), {}
