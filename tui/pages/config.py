"""The configuration page. Settings that differ from the defaults are marked."""

import json
from functools import cache
from typing import Any

from edgeflock.shared.settings.config import Config
from edgeflock.tui.sources.state import MonitorState
from edgeflock.tui.text import numbers
from edgeflock.tui.text.lines import Line, columns, fit, join_blocks


def config_page(state: MonitorState, width: int) -> list[Line]:
    """Return all settings, in two columns if the screen is wide enough."""
    number = 2 if width >= 100 else 1
    each = columns(width - 1, number)
    defaults = _defaults()
    parts: list[list[Line]] = [[] for _ in range(number)]
    for name, keys in state.run.config.items():
        min(parts, key=len).extend(_section(name, keys, defaults.get(name, {}), each[0]))
    for part in parts:
        part += [[]] * (max(map(len, parts)) - len(part))
    head: list[Line] = [
        [
            (" run ", "dim"),
            (state.run.run, "strong"),
            ("  model ", "dim"),
            (numbers.plain(state.run.model), "strong"),
            ("  parameters ", "dim"),
            (numbers.count(state.run.parameters), "strong"),
        ],
        [(" ● differs from the default", "accent")],
        [],
    ]
    return head + join_blocks([(part, w) for part, w in zip(parts, each, strict=True)])


@cache
def _defaults() -> dict[str, dict[str, Any]]:
    return Config().model_dump()


def _section(name: str, keys: dict[str, Any], defaults: dict[str, Any], width: int) -> list[Line]:
    lines: list[Line] = [[(f" [{numbers.plain(name)}]", "strong")]]
    for key, value in keys.items():
        changed = key in defaults and defaults[key] != value
        shown = numbers.plain(json.dumps(value, ensure_ascii=False, default=str))
        lines.append(
            [
                (" ● " if changed else "   ", "accent"),
                (fit(numbers.plain(key), 18), "dim"),
                (shown[: max(0, width - 21)], "strong" if changed else "text"),
            ]
        )
    return [*lines, []]
