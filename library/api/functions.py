"""Callbacks and metrics that a program passes."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from edgeflock.shared.errors import ConfigError

News = TypeVar("News")

Metrics = Sequence[str] | Mapping[str, Callable[..., Any]]
"""Names of metrics, or the program's own names with functions and torchmetrics' metrics."""


def check_callback(function: Callable[[News], object] | None, caller: str) -> Callable[[News], object] | None:
    """Return `function`, an argument of `caller`. Raises ConfigError if it is not callable, or async."""
    value: object = function
    if value is not None and not callable(value):
        kind = type(value).__name__
        raise ConfigError(f"edgeflock.{caller}=...) is a {kind}; give a function of one argument")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"edgeflock.{caller}=...) is async, and nothing waits for it; give a plain function, which may "
            "start a task"
        )
    return function


def split_metrics(metrics: Metrics, caller: str) -> tuple[list[str], dict[str, Callable[..., Any]]]:
    """Return (names for model.metrics, functions by name) of the argument of `caller`. Raises ConfigError."""
    value: object = metrics
    if isinstance(metrics, Mapping):
        return [], dict(metrics)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(
            f'edgeflock.{caller}=...) is a {type(value).__name__}; give ["f1", "topk(k=3)"], or a dict of '
            "names to functions of (outputs, targets)"
        )
    return list(metrics), {}
