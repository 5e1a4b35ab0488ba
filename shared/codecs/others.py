"""Codings of other packages. Both ends must have them, under the same number."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from edgeflock.shared.errors import ConfigError

MIN_MODE, MAX_MODE = 64, 127
"""The range of their mode numbers on the wire; built-in codings have smaller ones."""


class Numbered(Protocol):
    @property
    def mode(self) -> int: ...


Coding = TypeVar("Coding", bound=Numbered)


def coding_check(kind: type[Coding]) -> Callable[[object], Coding | None]:
    """Return a function: object -> the coding, or None. It raises ConfigError outside MIN_MODE..MAX_MODE."""

    def coding_of(found: object) -> Coding | None:
        if not isinstance(found, kind):
            return None
        if not MIN_MODE <= found.mode <= MAX_MODE:
            raise ConfigError(
                f"a coding has mode = {found.mode}: choose one of {MIN_MODE} to {MAX_MODE} for it"
            )
        return found

    return coding_of
