"""Settings that name an entry of a table: a coding, a loss, a rule. A new entry is a new choice.

The table is read when a setting is checked.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from pydantic import PlainValidator, ValidationInfo
from pydantic_core import PydanticKnownError

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.calls import Call
from edgeflock.shared.plugins import Table

Tables = Mapping[str, Mapping[str, Any]]
"""section.key -> the table of its choices, for tables that one end has (server/hosting/choices.py)."""


def one_of(table: Mapping[str, object]) -> PlainValidator:
    """For a setting that is a name in `table`."""

    def check(name: object) -> object:
        return name if _is_imported_entry(name, table) else _check_name(name, table)

    return PlainValidator(check)


def call_of(table: Mapping[str, object], key: str) -> PlainValidator:
    """For a setting that is an import string or a name in `table`, with arguments or without."""

    def check(text: object) -> object:
        if not isinstance(text, str) or text in table:
            return _check_name(text, table)
        try:
            call = Call.parse(text, key)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if not _is_imported_entry(call.name, table) and call.name not in table:
            _check_name(text, table)
        return str(call)

    return PlainValidator(check)


def one_of_tables(key: str) -> PlainValidator:
    """For the setting `key`, a name in tables[key], which the reader of the settings passes.

    Without such a table any name is valid: the other end does not use it.
    """

    def check(name: object, info: ValidationInfo) -> object:
        tables: Tables = info.context or {}
        if key in tables and not _is_imported_entry(name, tables[key]):
            return _check_name(name, tables[key])
        if not isinstance(name, str):
            raise PydanticKnownError("string_type")
        return name

    return PlainValidator(check)


def _is_imported_entry(name: object, table: Mapping[str, object]) -> TypeGuard[str]:
    """Whether it is an entry that an import string names: settings may import."""
    if not isinstance(table, Table) or not isinstance(name, str) or ":" not in name:
        return False
    try:
        table.resolve(name)
    except KeyError:
        return False
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return True


def quote_names(names: Iterable[str]) -> str:
    """Join names as in 'a', 'b' or 'c'."""
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last


def _check_name(name: object, names: Iterable[str]) -> object:
    if name not in list(names):
        raise PydanticKnownError("literal_error", {"expected": quote_names(names)})
    return name
