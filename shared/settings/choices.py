"""Settings that name an entry of a table: a coding, a loss, a rule. The table alone says what can be chosen.

It is looked into when a setting is read, so that whoever adds an entry has added a choice.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard, TypeVar

from pydantic import PlainValidator, ValidationInfo
from pydantic_core import PydanticKnownError

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.calls import Call
from edgeflock.shared.plugins import Table

Entry = TypeVar("Entry")

Tables = Mapping[str, Mapping[str, Any]]
"""section.key -> the table of its choices, of settings whose table belongs to one end (server/choices.py)."""


def one_of(table: Mapping[str, Entry], where: Callable[[Entry], bool] = lambda entry: True) -> PlainValidator:
    """For a setting that is a name in `table`, of an entry for which `where` holds."""

    def check(name: object) -> object:
        if _is_chosen(name, table) and where(table[name]):
            return name
        return _checked(name, [known for known, entry in table.items() if where(entry)])

    return PlainValidator(check)


def call_of(table: Mapping[str, Entry], key: str) -> PlainValidator:
    """For a setting that is an import string or a name in `table`, with arguments or without."""

    def check(text: object) -> object:
        if not isinstance(text, str) or text in table:
            return _checked(text, table)
        try:
            call = Call.of(text, key)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return str(call) if _is_chosen(call.name, table) else _checked_call(text, call, table)

    return PlainValidator(check)


def one_of_the_ends(key: str) -> PlainValidator:
    """For the setting `key`, whose table whoever reads the settings has: a name in tables[key].

    The other end hands in no such table, and takes any name: it has no use for it.
    """

    def check(name: object, info: ValidationInfo) -> object:
        tables: Tables = info.context or {}
        if key in tables and not _is_chosen(name, tables[key]):
            return _checked(name, tables[key])
        if not isinstance(name, str):
            raise PydanticKnownError("string_type")
        return name

    return PlainValidator(check)


def _is_chosen(name: object, table: Mapping[str, object]) -> TypeGuard[str]:
    """Whether it is an entry that an import string finds: what settings say may be imported."""
    if not isinstance(table, Table) or not isinstance(name, str) or ":" not in name:
        return False
    try:
        table.chosen(name)
    except KeyError:
        return False
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return True


def _checked_call(text: str, call: Call, table: Mapping[str, object]) -> str:
    if call.name not in table:
        _checked(text, table)
    return str(call)


def listed(names: Iterable[str]) -> str:
    """'a', 'b' or 'c'"""
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last


def _checked(name: object, known: Iterable[str]) -> object:
    if name not in list(known):
        raise PydanticKnownError("literal_error", {"expected": listed(known)})
    return name
