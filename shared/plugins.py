"""What other packages add to our tables, by entry points: a weighting rule, a loss, a source.

[project.entry-points."edgeflock.rules"]
squared = "their_package:SQUARED"
"""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from edgeflock.shared.errors import ConfigError

Entry = TypeVar("Entry")


class Table(MutableMapping[str, Entry]):
    """Our entries by name, and behind them what installed packages have in a group of entry points.

    These are looked for when first asked for, and loaded when they are wanted: they import us. Whoever asks
    gets a ConfigError for one that cannot be loaded, or takes a name that is taken: journals and settings go
    by it.
    """

    def __init__(self, group: str, ours: Mapping[str, Entry]) -> None:
        self._group = group
        self._known = dict(ours)
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
            entry: Entry = point.load()
        except Exception as error:  # another's module may raise anything
            why = f"cannot be loaded: {type(error).__name__}: {error}"
            raise ConfigError(f"{self._called(point)} {why}; uninstall or mend it") from error
        return entry

    def _called(self, point: EntryPoint) -> str:
        return f"the plug-in {point.name!r} of {self._group} ({point.value})"
