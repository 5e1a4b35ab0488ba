"""Tables of codings, to which other packages may add. Both ends must have a coding under the same number."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from edgeflock.shared.errors import ConfigError, WrongDtype
from edgeflock.shared.plugins import Table

MIN_MODE, MAX_MODE = 64, 127
"""The range of their mode numbers on the wire; built-in codings have smaller ones."""


class Numbered(Protocol):
    @property
    def mode(self) -> int: ...


Coding = TypeVar("Coding", bound=Numbered)


class Codings(Table[Coding]):
    """Codings by name; the mode is their number on the wire."""

    def __init__(self, kind: str, builtin: Mapping[str, Coding], coding: type[Coding]) -> None:
        """`kind` of codings: index or value. Others must be objects of the class `coding`."""
        super().__init__(f"edgeflock.{kind}_codings", builtin, self._coding_of)
        self._kind, self._class = kind, coding
        self._names = {one.mode: name for name, one in builtin.items()}

    def name_of(self, mode: int) -> str:
        """Return the name of the coding of this mode. Raises WrongDtype if it is unknown."""
        if mode in self._names:
            return self._names[mode]
        for name, coding in self.items():
            if coding.mode == mode:
                return name
        known = ", ".join(f"{coding.mode} ({name})" for name, coding in self.items())
        raise WrongDtype(f"{self._kind} mode {mode} is unknown; known are {known}")

    def _coding_of(self, found: object) -> Coding | None:
        """Return the coding; None if it is none. Raises ConfigError outside MIN_MODE..MAX_MODE."""
        if not isinstance(found, self._class):
            return None
        if not MIN_MODE <= found.mode <= MAX_MODE:
            raise ConfigError(
                f"a coding has mode = {found.mode}: choose one of {MIN_MODE} to {MAX_MODE} for it"
            )
        return found
