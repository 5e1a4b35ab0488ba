"""What others add to our tables: a weighting rule, a loss, a source, a coding. By entry points of a package,

    [project.entry-points."edgeflock.rules"]
    squared = "their_package:SQUARED"

by an import string in settings (`chosen`), or as an object in a program (`given`). Whoever is elsewhere names
entries only: no import string from a socket or a journal (`known`) is ever followed.
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
    """Our entries by name, and behind them what installed packages have in a group of entry points.

    These are looked for when first asked for, and loaded when they are wanted: they import us. Whoever asks
    gets a ConfigError for one that cannot be loaded, or takes a name that is taken: journals and settings go
    by it.
    """

    def __init__(
        self, group: str, ours: Mapping[str, Entry], entry_of: Callable[[Any], Entry | None] | None = None
    ) -> None:
        """`entry_of` makes an entry of what others bring; None of what is none."""
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
        """table[name], or what an import string names: for names that this process's owner has given.

        Raises ConfigError if that cannot be imported, or is no entry.
        """
        if name in self or not _IMPORT.fullmatch(name):
            return self[name]
        module, _, attribute = name.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except Exception as error:  # another's module may raise anything
            why = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{name} cannot be imported: {why}; mend it, or name another") from error
        self._known[name] = self._checked(found, name)
        return self._known[name]

    def known(self, name: str, key: str) -> Entry:
        """table[name], which a journal names for the setting `key`; whoever made it has nothing imported.

        Raises ConfigError if there is none; one of an import string must be `chosen` or `given` before.
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
        """Whether there is an entry of this name, or it is an import string, which may find one."""
        return name in self or _IMPORT.fullmatch(name) is not None

    def given(self, entry: object) -> str:
        """The name of an object of this program, which is an entry from now on: an import string if another
        process finds it so, else one that is good in this process only. Raises ConfigError if it is no entry.
        """
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
        """Whether it is an object that this program gave."""
        return name in self._given

    def is_here_only(self, name: str) -> bool:
        """Whether no other process finds it under its name."""
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
        except Exception as error:  # another's module may raise anything
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
    """What an object is called, in every process that makes the same one. Raises ConfigError if it has no
    such name.
    """
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
