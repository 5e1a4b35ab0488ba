"""An operator's preferences: theme and columns, in a TOML file."""

import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edgeflock.shared.errors import ConfigError
from edgeflock.tui.pages import fleet

_KEYS = ("theme", "columns")


@dataclass(frozen=True, slots=True)
class Preferences:
    """The content of top.toml."""

    theme: str = "edgeflock"
    columns: tuple[fleet.Column, ...] = ()
    """Columns of the table after the name. Empty means all."""


def folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "edgeflock"


def load(path: Path, themes: Iterable[str]) -> Preferences:
    """Return the preferences in `path`, or the defaults if there is no such file. Raises ConfigError."""
    table = _read(path)
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"{path}: unknown key {key} = {table[key]!r}; known are {', '.join(_KEYS)}")
    theme = table.get("theme", "edgeflock")
    if theme not in (known := list(themes)):
        raise ConfigError(f"{path}: theme = {theme!r} is none of {', '.join(known)}")
    columns = table.get("columns", [])
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise ConfigError(f'{path}: columns = {columns!r} must be titles, such as ["state", "loss", "temp"]')
    try:
        chosen = tuple(fleet.find_column(name) for name in columns)
    except ConfigError as error:
        raise ConfigError(f"{path}: columns = {columns!r}: {error}") from error
    return Preferences(theme, chosen)


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
