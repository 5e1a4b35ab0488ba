"""Objects instead of names: settings, the journal and the wire refer to entries of tables by name."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.codecs.sparse import CODINGS as INDEX_CODINGS
from edgeflock.shared.codecs.values import CODINGS as VALUE_CODINGS
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.plugins import Table
from edgeflock.shared.settings.choices import Tables

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


_TABLES: Tables = {
    **CHOICES,
    "compression.indices": INDEX_CODINGS,
    **{f"{end}.values": VALUE_CODINGS for end in ("compression", "downlink")},
}

_SECTION_KEYS = {"coordination": "rule", "optimizer": "kind", "defence": "mode"}
"""Section -> the key for an object that replaces the section."""


def name_objects(sections: Mapping[str, object]) -> dict[str, object]:
    """Return `sections` with names instead of objects.

    Each object becomes an entry of its table in this process. A rule may replace `coordination`, an optimizer
    `optimizer`, and a defence `defence`. Raises ConfigError.
    """
    return {name: _name_section(name, section) for name, section in sections.items()}


def _name_section(name: str, section: object) -> object:
    if name in _SECTION_KEYS and not isinstance(section, Mapping | str | int | float | None):
        section = {_SECTION_KEYS[name]: section}
    if not isinstance(section, Mapping):
        return section
    return {key: _name_value(f"{name}.{key}", value) for key, value in section.items()}


def _name_value(key: str, value: object) -> object:
    table = _TABLES.get(key)
    if not isinstance(table, Table) or isinstance(value, str | int | float | None):
        return value
    return table.register(value)
