"""Tables that other packages extend with a weighting rule, a loss, a source or a coding.

A package adds an entry with an entry point:

    [project.entry-points."edgeflock.rules"]
    squared = "their_package:SQUARED"

Settings may use an import string (`chosen`), and a program may pass an object (`given`). Sockets and journals
may only name existing entries (`known`): an import string from them is never followed.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

from edgeflock.shared.errors import ConfigError

Entry = TypeVar("Entry")

_IMPORT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""package.module:name"""


class Table(MutableMapping[str, Entry]):
    """Built-in entries by name, and the entries that installed packages have in a group of entry points.

    It looks for entry points on first use and loads each on demand, because they import this package. It
    raises ConfigError for an entry that cannot be loaded or has a duplicate name: journals and settings rely
    on names.
    """

    def __init__(
        self, group: str, builtin: Mapping[str, Entry], entry_of: Callable[[Any], Entry | None] | None = None
    ) -> None:
        """`entry_of` converts a foreign object to an entry, or returns None if the object is not valid."""
        self._group = group
        self._entry_of = entry_of or (lambda found: found)
        self._entries = dict(builtin)
        self._registered: set[str] = set()
        self._process_local: set[str] = set()
        self._points: dict[str, EntryPoint] | None = None

    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            self._entries[name] = self._load(self._plugins[name])
        return self._entries[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._entries, *self._plugins]))

    def __len__(self) -> int:
        return len(self._entries.keys() | self._plugins)

    def resolve(self, name: str) -> Entry:
        """Return table[name], or the object of an import string. For names from the process's owner.

        Raises ConfigError if the import fails or the object is not an entry.
        """
        if name in self or not _IMPORT.fullmatch(name):
            return self[name]
        module, _, attribute = name.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except Exception as error:  # foreign modules may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{name} cannot be imported: {reason}; correct it, or name another") from error
        self._entries[name] = self._check(found, name)
        return self._entries[name]

    def lookup(self, name: str, key: str) -> Entry:
        """Return table[name], which a journal names for the setting `key`, without any import.

        Raises ConfigError if there is no such entry; an import string must be `chosen` or `given` before.
        """
        if name in self:
            return self[name]
        if _IMPORT.fullmatch(name):
            raise ConfigError(
                f"the journal has {key} = {name!r}, and code that a journal names is not imported: if you "
                f"trust that code, set {key} = {name!r} yourself, or pass the object"
            )
        raise ConfigError(f"{key} = {name!r} must be one of {', '.join(self)}")

    def can_resolve(self, name: str) -> bool:
        """Whether an entry has this name, or the name is an import string, which may find one."""
        return name in self or _IMPORT.fullmatch(name) is not None

    def register(self, entry: object) -> str:
        """Add an object of this program as an entry and return its name. Raises ConfigError if it is none.

        The name is an import string if other processes can import it; else it is valid in this process only.
        """
        if isinstance(entry, FunctionType | type):
            name = f"{entry.__module__}:{entry.__qualname__}"
        else:
            name = f"{type(entry).__module__}:{_stable_name(entry)}"
        self._entries[name] = self._check(entry, name)
        self._registered.add(name)
        if _can_be_imported(name, entry):
            self._process_local.discard(name)
        else:
            self._process_local.add(name)
        return name

    def is_registered(self, name: str) -> bool:
        """Whether `name` is an object that this program passed to `given`."""
        return name in self._registered

    def is_process_local(self, name: str) -> bool:
        """Whether no other process can import the object by this name."""
        return name in self._process_local

    @property
    def _plugins(self) -> dict[str, EntryPoint]:
        if self._points is None:
            found: dict[str, EntryPoint] = {}
            for point in entry_points(group=self._group):
                if point.name in self._entries or point.name in found:
                    raise ConfigError(
                        f"{self._plugin_name(point)}: another one has this name; uninstall one of them"
                    )
                found[point.name] = point
            self._points = found
        return self._points

    def _load(self, point: EntryPoint) -> Entry:
        try:
            found = point.load()
        except Exception as error:  # foreign modules may raise anything
            reason = f"cannot be loaded: {type(error).__name__}: {error}"
            raise ConfigError(f"{self._plugin_name(point)} {reason}; uninstall or correct it") from error
        return self._check(found, self._plugin_name(point))

    def _check(self, found: object, name: str) -> Entry:
        entry = self._entry_of(found)
        if entry is None:
            raise ConfigError(
                f"{name} is a {type(found).__name__}, which cannot be an entry of {self._group}"
            )
        return entry

    def _plugin_name(self, point: EntryPoint) -> str:
        return f"the plug-in {point.name!r} of {self._group} ({point.value})"


def _stable_name(entry: object) -> str:
    """Return a name that is the same in every process. Raises ConfigError if the object has none."""
    if isinstance(entry, FunctionType | BuiltinFunctionType | type):
        return f"{entry.__module__}.{entry.__qualname__}"
    if is_dataclass(entry) and not isinstance(entry, type):
        values = ", ".join(
            f"{field.name}={_stable_name(getattr(entry, field.name))}" for field in fields(entry)
        )
        return f"{type(entry).__name__}({values})"
    if (words := repr(entry)).startswith("<"):
        raise ConfigError(
            f"{words:.80} has no name that is the same in every process; make it a function, or a dataclass"
        )
    return words


def _can_be_imported(name: str, entry: object) -> bool:
    """Whether another process finds `entry` by this import string."""
    module, _, attribute = name.partition(":")
    if module == "__main__" or not _IMPORT.fullmatch(name):
        return False
    return getattr(sys.modules.get(module), attribute, None) is entry
