"""Codings of other packages. Both ends must have them, under the same number."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from edgeflock.shared.errors import ConfigError

LEAST, MOST = 64, 127
"""The range of their mode numbers on the wire; built-in codings have smaller ones."""


class Numbered(Protocol):
    @property
    def mode(self) -> int: ...


Coding = TypeVar("Coding", bound=Numbered)


def of_others(kind: type[Coding]) -> Callable[[object], Coding | None]:
    """Return a check that gives None for other objects than this kind. Raises ConfigError outside
    LEAST..MOST."""

    def coding_of(found: object) -> Coding | None:
        if not isinstance(found, kind):
            return None
        if not LEAST <= found.mode <= MOST:
            raise ConfigError(f"a coding has mode = {found.mode}: choose one of {LEAST} to {MOST} for it")
        return found

    return coding_of
