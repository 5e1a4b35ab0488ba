"""Settings of a schema: one TOML file, then EDGEFLOCK_SECTION__KEY in the environment, then --set.

An error names the key, where it was set, its value and the nearest valid key.
"""

import ast
import difflib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.choices import Tables
from edgeflock.shared.settings.presets import PRESETS

PREFIX = "EDGEFLOCK_"

_OUTSIDE = "preset"
"""The key outside of sections."""


def check_64_bits(value: Any) -> Any:
    """Return a setting's value. Raises ValueError for a whole number too large for journals and records."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("must be within 64 bits")
    return value


class Section(BaseModel):
    """A section of settings. `descriptions` reads the docstrings of its fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    _check_integers = field_validator("*")(check_64_bits)


def descriptions(section: type[Section]) -> dict[str, str]:
    """Return key -> description, from the source: importing settings then need not parse it."""
    body = ast.parse(inspect.getsource(section)).body[0].body  # type: ignore[attr-defined]  # it is a class
    return {
        ast.unparse(field.target): " ".join(ast.literal_eval(text.value).split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def split_list(entries: object) -> object:
    """Split text of the environment or --set: entries with commas between."""
    if not isinstance(entries, str):
        return entries
    return [entry.strip() for entry in entries.split(",") if entry.strip()]


@dataclass(frozen=True, slots=True)
class _Setting:
    value: object
    origin: str
    text: bool = False
    """Whether it is text only because --set and the environment have nothing else."""


_Settings = dict[tuple[str, str], _Setting]


Schema = TypeVar("Schema", bound=Section)


def parse_as(
    schema: type[Schema],
    toml: str,
    source: str,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    tables: Tables | None = None,
    document: Mapping[str, object] | None = None,
) -> Schema:
    """config.parse for any `schema`.

    `document` has sections as parsed from TOML, instead of `toml`; then `source` names their receiver. A
    field of type dict[str, S] is a family of sections: [field.NAME].
    """
    settings: _Settings = {}
    if document is None:
        settings |= _from_toml(schema, toml, source)
    else:
        settings |= _from_tables(schema, document, source, lambda section, key: source)
    settings |= _from_environment(environ or {})
    settings |= _from_overrides(overrides)
    if unknown := [text for path, setting in settings.items() if (text := _unknown(schema, *path, setting))]:
        raise ConfigError("\n".join(unknown))
    sections: dict[str, Any] = {}
    for (section, key), setting in settings.items():
        table = sections
        for name in section.split(".", 1):  # the name of a family's member may have dots of its own
            table = table.setdefault(name, {})
        table[key] = (
            _parse_value(setting.value) if setting.text and _is_open(schema, section) else setting.value
        )
    try:
        return schema.model_validate(sections, context=tables)
    except ValidationError as invalid:
        lines = (_explain(schema, error, settings) for error in invalid.errors())
        raise ConfigError("\n".join(lines)) from invalid


def _from_toml(schema: type[Section], text: str, source: str) -> _Settings:
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of a number of thousands of digits
        raise ConfigError(f"{source}: not TOML: {error}") from error
    return _from_tables(
        schema, tables, source, lambda section, key: f"{source} line {_line(text, section, key)}"
    )


def _from_tables(
    schema: type[Section], tables: Mapping[str, Any], source: str, origin: Callable[[str, str], str]
) -> _Settings:
    """`origin` says where a section's key was set."""
    settings: _Settings = {}
    for section, table in tables.items():
        if not isinstance(table, dict) or not (table or section in schema.model_fields):
            settings["", section] = _Setting(table, origin("", section))
            continue
        for key, value in table.items():
            if isinstance(value, dict) and _is_family(schema, section):
                path, items = f"{section}.{key}", value
                if not value:
                    raise ConfigError(f"{source}: [{path}] is empty; leave it out, or set its keys")
            else:
                path, items = section, {key: value}
            for name, item in items.items():
                settings[path, name] = _Setting(item, origin(path, name))
    return _with_preset(settings)


def _with_preset(settings: _Settings) -> _Settings:
    """Add the settings of the preset that `settings` name, if any; `settings` override them."""
    chosen = settings.pop(("", "preset"), None)
    if chosen is None:
        return settings
    origin = f"{chosen.origin}: preset = {chosen.value!r}"
    if chosen.value not in list(PRESETS):
        raise ConfigError(f"{origin} is no preset; known are {', '.join(PRESETS)}")
    preset = {path.partition("."): value for path, value in PRESETS[str(chosen.value)].items()}
    return {(section, key): _Setting(value, origin) for (section, _, key), value in preset.items()} | settings


def _line(text: str, section: str, key: str) -> int:
    """The line that sets section.key; the first of the file if it is set in an unusual way."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            current = stripped.split("]")[0].strip("[ ]")
            if not section and current == key:
                return number
        elif current == section and stripped.partition("=")[0].strip(" \"'") == key:
            return number
    return 1


def _from_environment(environ: Mapping[str, str]) -> _Settings:
    """EDGEFLOCK_MODEL__SEED=1 sets model.seed. Names without a double underscore are not settings."""
    settings: _Settings = {}
    for name, value in environ.items():
        section, separator, key = name.removeprefix(PREFIX).lower().partition("__")
        if not separator:
            section, key = "", section
        if name.startswith(PREFIX) and (section or key == _OUTSIDE):
            settings[section, key] = _Setting(value, name, text=True)
    return _with_preset(settings)


def _from_overrides(overrides: Iterable[str]) -> _Settings:
    settings: _Settings = {}
    for override in overrides:
        path, equals, value = override.partition("=")
        section, _, key = path.strip().rpartition(".")
        if not equals or not (section or key == _OUTSIDE):
            raise ConfigError(f"--set {override!r} must be section.key=value, e.g. end.updates=1000")
        settings[section, key] = _Setting(value.strip(), "--set", text=True)
    return _with_preset(settings)


def _is_open(schema: type[Section], section: str) -> bool:
    """Whether the section may have any key."""
    if section not in schema.model_fields or _is_family(schema, section):
        return False
    annotation: Any = schema.model_fields[section].annotation
    return bool(annotation.model_config.get("extra") == "allow")


def _parse_value(text: object) -> object:
    """Parse `text` as a TOML value, where no schema has its type; if it is none, return the text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _unknown(schema: type[Section], section: str, key: str, setting: _Setting) -> str:
    """Return what is wrong with a key that the section lacks, and the remedy; empty: it has the key."""
    if _is_open(schema, section) or key in _fields(schema, section):
        return ""
    path = f"{section}.{key}" if section else key
    text = f"{path} = {setting.value!r}"
    if setting.value == {} and not section:
        return f"{setting.origin}: unknown section [{key}]; sections are {', '.join(schema.model_fields)}"
    problem = f"unknown key {text}" if section else f"{text} is outside a section"
    return f"{setting.origin}: {problem}; {_hint(schema, section, key)}"


def _fields(schema: type[Section], section: str) -> dict[str, Any]:
    """The keys of a section, or of a member of a family; none if there is no such section."""
    name, _, member = section.partition(".")
    if name not in schema.model_fields:
        return {}
    annotation: Any = schema.model_fields[name].annotation
    if _is_family(schema, name) != bool(member):
        return {}
    fields: dict[str, Any] = (get_args(annotation)[1] if member else annotation).model_fields
    return fields


def _is_family(schema: type[Section], section: str) -> bool:
    return section in schema.model_fields and get_origin(schema.model_fields[section].annotation) is dict


def _hint(schema: type[Section], section: str, key: str) -> str:
    """Return the remedy for an unknown key: a similar one, or the sections."""
    if key == "preset":
        return "a preset stands before the first section"
    if (section, key) == ("model", "arguments"):
        return "model.module takes them: Name(argument=value, ...)"
    names = dict.fromkeys([section, *schema.model_fields])
    paths = [f"{name}.{known}" for name in names for known in _fields(schema, name)]
    keys = [path.rpartition(".")[2] for path in paths]
    own = [known for path, known in zip(paths, keys, strict=True) if path == f"{section}.{known}"]
    # A right key in a wrong section is a better guess than a similar spelling.
    if near := (
        [key] * (key in keys)
        or difflib.get_close_matches(key, own, 1, 0.5)
        or difflib.get_close_matches(key, keys, 1, 0.75)
    ):
        return f"did you mean {paths[keys.index(near[0])]}?"
    return f"sections are {', '.join(schema.model_fields)}"


def _explain(schema: type[Section], error: Any, settings: _Settings) -> str:
    path = [str(part) for part in error["loc"]]
    message = error["msg"].replace("Input should be", "must be").removeprefix("Value error, ")
    for end in range(len(path), 1, -1):  # an error inside a list has positions after the key
        section, key = ".".join(path[: end - 1]), path[end - 1]
        if (section, key) in settings:
            break
    else:
        return f"{'.'.join(path) or 'settings'}: {message}"
    setting = settings[section, key]
    if ": preset = " in setting.origin:
        message = message.replace(f"leave {section}.{key} out", "leave the preset out")
    hint = ""
    inner = ".".join(path[end:])
    if error["type"] == "extra_forbidden" and inner:
        table = _fields(schema, section)[key].annotation
        message, inner = f"{inner} is no key of it; keys are {', '.join(table.model_fields)}", ""
    elif error["type"] == "list_type" and isinstance(error["input"], str):
        hint = f', e.g. ["{error["input"]}"]'
    if error["type"] == "literal_error":
        options = re.findall("'(.*?)'", error["ctx"]["expected"])
        near = difflib.get_close_matches(str(error["input"]), options, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
    named = f"{inner} " if inner and not inner[0].isdecimal() else ""  # a position in a list is no name
    return f"{setting.origin}: {section}.{key} = {setting.value!r}: {named}{message}{hint}"
