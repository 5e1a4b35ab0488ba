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
        self, group: str, ours: Mapping[str, Entry], entry_of: Callable[[Any], Entry | None] | None = None
    ) -> None:
        """`entry_of` converts a foreign object to an entry, or returns None if the object is not valid."""
        self._group = group
        self._entry_of = entry_of or (lambda found: found)
        self._known = dict(ours)
        self._given: set[str] = set()
        self._here_only: set[str] = set()
        self._found: dict[str, EntryPoint] | None = None

    def __getitem__(self, name: str) -> Entry:
        if name not in self._known:
            self._known[name] = self._loaded(self._others[name])
        return self._known[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._known[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._known, *self._others]))

    def __len__(self) -> int:
        return len(self._known.keys() | self._others)

    def chosen(self, name: str) -> Entry:
        """Return table[name], or the object of an import string. For names from the process's owner.

        Raises ConfigError if the import fails or the object is not an entry.
        """
        if name in self or not _IMPORT.fullmatch(name):
            return self[name]
        module, _, attribute = name.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except Exception as error:  # foreign modules may raise anything
            why = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{name} cannot be imported: {why}; mend it, or name another") from error
        self._known[name] = self._checked(found, name)
        return self._known[name]

    def known(self, name: str, key: str) -> Entry:
        """Return table[name], which a journal names for the setting `key`, without any import.

        Raises ConfigError if there is no such entry; an import string must be `chosen` or `given` before.
        """
        if name in self:
            return self[name]
        if _IMPORT.fullmatch(name):
            raise ConfigError(
                f"{key} = {name!r} is what the journal says, and a journal imports nothing: if you trust "
                f"that code, set {key} = {name!r} yourself, or give the object"
            )
        raise ConfigError(f"{key} = {name!r} must be one of {', '.join(self)}")

    def may_be_chosen(self, name: str) -> bool:
        """Whether an entry has this name, or the name is an import string, which may find one."""
        return name in self or _IMPORT.fullmatch(name) is not None

    def given(self, entry: object) -> str:
        """Add an object of this program as an entry and return its name. The name is an import string if
        other processes can import it; else it is valid in this process only. Raises ConfigError if it is no
        entry."""
        if isinstance(entry, FunctionType | type):
            name = f"{entry.__module__}:{entry.__qualname__}"
        else:
            name = f"{type(entry).__module__}:{_words(entry)}"
        self._known[name] = self._checked(entry, name)
        self._given.add(name)
        if _can_be_imported(name, entry):
            self._here_only.discard(name)
        else:
            self._here_only.add(name)
        return name

    def is_given(self, name: str) -> bool:
        """Whether `name` is an object that this program passed to `given`."""
        return name in self._given

    def is_here_only(self, name: str) -> bool:
        """Whether no other process can import the object by this name."""
        return name in self._here_only

    @property
    def _others(self) -> dict[str, EntryPoint]:
        if self._found is None:
            found: dict[str, EntryPoint] = {}
            for point in entry_points(group=self._group):
                if point.name in self._known or point.name in found:
                    raise ConfigError(f"{self._called(point)}: there is one of this name; uninstall one")
                found[point.name] = point
            self._found = found
        return self._found

    def _loaded(self, point: EntryPoint) -> Entry:
        try:
            found = point.load()
        except Exception as error:  # foreign modules may raise anything
            why = f"cannot be loaded: {type(error).__name__}: {error}"
            raise ConfigError(f"{self._called(point)} {why}; uninstall or mend it") from error
        return self._checked(found, self._called(point))

    def _checked(self, found: object, name: str) -> Entry:
        entry = self._entry_of(found)
        if entry is None:
            raise ConfigError(f"{name} is a {type(found).__name__}, which is nothing for {self._group}")
        return entry

    def _called(self, point: EntryPoint) -> str:
        return f"the plug-in {point.name!r} of {self._group} ({point.value})"


def _words(entry: object) -> str:
    """Return a name that is the same in every process. Raises ConfigError if the object has none."""
    if isinstance(entry, FunctionType | BuiltinFunctionType | type):
        return f"{entry.__module__}.{entry.__qualname__}"
    if is_dataclass(entry) and not isinstance(entry, type):
        told = ", ".join(f"{field.name}={_words(getattr(entry, field.name))}" for field in fields(entry))
        return f"{type(entry).__name__}({told})"
    if (words := repr(entry)).startswith("<"):
        raise ConfigError(f"{words:.80} has no name that outlasts it; make it a function, or a dataclass")
    return words


def _can_be_imported(name: str, entry: object) -> bool:
    """Whether another process finds `entry` by this import string."""
    module, _, attribute = name.partition(":")
    if module == "__main__" or not _IMPORT.fullmatch(name):
        return False
    return getattr(sys.modules.get(module), attribute, None) is entry
