"""One setting of a TOML file, changed; every other line stays as it is."""

import re
import tomllib
from typing import Any

from edgeflock.shared.errors import ConfigError


def replace_setting(text: str, source: str, name: str, value: float | str) -> str:
    """`text`, the TOML of `source`, with the setting `name`, which is SECTION.KEY, at `value`.

    Raises ConfigError if the setting stands there in another way than `KEY = ...` below `[SECTION]`.
    """
    section, _, key = name.partition(".")
    written = f'"{value}"' if isinstance(value, str) else f"{value:g}"
    lines, line = text.splitlines(keepends=True), f"{key} = {written}"
    header = _find_line(rf"\[\s*{section}\s*\]", lines, 0, len(lines))
    if header is None:
        gap = "" if text in ("", "\n") else "\n" if text.endswith("\n") else "\n\n"
        changed = f"{text}{gap}[{section}]\n{line}\n"
    else:
        end = _find_line(r"\[", lines, header + 1, len(lines))
        index = _find_line(rf"{key}\s*=", lines, header + 1, len(lines) if end is None else end)
        if index is None:
            lines[header] = lines[header].rstrip("\n") + "\n"
            lines.insert(header + 1, line + "\n")
        else:
            lines[index] = re.sub(rf"({key}\s*=\s*)[^\s#]+", rf"\g<1>{written}", lines[index], count=1)
        changed = "".join(lines)
    if _parse(changed) != _set_value(_parse(text), section, key, value):
        raise ConfigError(f"{source} says {name} in a form that is not changed here: set {line} yourself")
    return changed


def _find_line(pattern: str, lines: list[str], start: int, stop: int) -> int | None:
    """The first of the lines that begins so."""
    return next((index for index in range(start, stop) if re.match(rf"\s*{pattern}", lines[index])), None)


def _parse(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _set_value(settings: dict[str, Any] | None, section: str, key: str, value: float | str) -> dict[str, Any]:
    tables = settings or {}
    return {**tables, section: {**tables.get(section, {}), key: value}}
