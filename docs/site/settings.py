"""Every setting, of the schema that reads them."""

import json
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from edgeflock.shared.settings.combinations import markdown
from edgeflock.shared.settings.config import Config
from edgeflock.shared.settings.presets import PRESETS
from edgeflock.shared.settings.settings import descriptions

_INTRODUCTION = """\
# Settings

A server, a device and an emulated fleet read the same ones: a TOML file, then the environment, then `--set`.
Later ones override earlier ones.

| where | how to set `server.port` |
|---|---|
| a file, read by `edgeflock server FILE` | the line `port = 9000` below the line `[server]` |
| the environment | `EDGEFLOCK_SERVER__PORT=9000` |
| the command line | `--set server.port=9000` |

A [preset](#presets) sets several at once. `edgeflock config` prints all of them as a file, in which they are
comments: remove the `#` before one to change it. An error names a wrong setting, its value, where it was
set, and the most similar valid one. A setting that would do nothing is
[refused as well](#what-goes-together).
"""

_PRESETS = """\
## Presets

`preset = "NAME"` stands in a file before the first section. `--set preset=NAME` and
`EDGEFLOCK_PRESET=NAME` work, too. Other settings in the same place override those of the preset. The preset
itself overrides earlier places: `--set preset=cohort` overrides the file. When to use them:
[cohorts](../cohorts.md), [compression](../compression.md#when-not-to-use-it).

| preset | sets |
|---|---|
"""

_TOGETHER = """\
## What goes together

A setting without a value in the first column stands for any value but its default. It is refused without what
it needs, because it would do nothing. `edgeflock config --matrix` prints this table.
"""


def page() -> str:
    """Markdown: a section for each of the settings', a table row for each key."""
    defaults = Config()
    lines = [_INTRODUCTION]
    for name, section in defaults:
        lines += [f"## {name}", "", f"{type(section).__doc__}", ""]
        lines += ["| setting | type | default | |", "|---|---|---|---|"]
        told = descriptions(type(section))
        for key, field in type(section).model_fields.items():
            value = getattr(section, key)
            default = "" if isinstance(value, BaseModel) else f"`{json.dumps(value)}`"
            cells = (f"`{name}.{key}`", kind(field), default, escaped(told.get(key, "")))
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    presets = (f"| `{name}` | {_settings_of(preset)} |\n" for name, preset in PRESETS.items())
    return "\n".join([*lines, _PRESETS + "".join(presets), _TOGETHER, markdown()])


def _settings_of(preset: dict[str, object]) -> str:
    return ", ".join(f"`{path} = {json.dumps(value)}`" for path, value in preset.items())


def kind(field: FieldInfo) -> str:
    """What a value may be: its type, and the bounds that it keeps.

    >>> from pydantic import Field
    >>> from pydantic.fields import FieldInfo
    >>> kind(FieldInfo.from_annotated_attribute(int, Field(3, ge=1)))
    'integer, 1 or more'
    """
    told = [_named(field.annotation)]
    for bound in field.metadata:
        for attribute, text in _BOUNDS.items():
            if (limit := getattr(bound, attribute, None)) is not None:
                told.append(text.format(limit))
    return escaped(", ".join(told))


_BOUNDS = {"ge": "{:,} or more", "gt": "above {:,}", "le": "{:,} at most", "lt": "below {:,}"}

_NAMES = {int: "integer", float: "number", str: "text", bool: "true or false", dict: "table", list: "list"}


def _named(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    if origin is None:
        return _NAMES.get(annotation, getattr(annotation, "__name__", str(annotation)))
    if all(isinstance(one, str) for one in arguments) and arguments:
        return " or ".join(f"`{json.dumps(one)}`" for one in arguments)
    if hasattr(annotation, "__metadata__"):
        return _named(arguments[0])
    if origin in (tuple, list):
        return f"list of {_named(arguments[0])}" if arguments else "list"
    if origin is dict:
        return "table"
    return " or ".join(_named(one) for one in arguments if one is not type(None))


def escaped(text: str) -> str:
    """`text` as it may stand in a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
