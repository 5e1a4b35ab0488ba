"""Codings of other packages: both ends must have them, and know them by the same number."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from edgeflock.shared.errors import ConfigError

LEAST, MOST = 64, 127
"""Their numbers on the wire; smaller ones are ours."""


class Numbered(Protocol):
    @property
    def mode(self) -> int: ...


Coding = TypeVar("Coding", bound=Numbered)


def of_others(kind: type[Coding]) -> Callable[[object], Coding | None]:
    """Takes codings of this kind, and says None of others; it raises ConfigError if the number is ours."""

    def coding_of(found: object) -> Coding | None:
        if not isinstance(found, kind):
            return None
        if not LEAST <= found.mode <= MOST:
            raise ConfigError(f"a coding has mode = {found.mode}: choose one of {LEAST} to {MOST} for it")
        return found

    return coding_of
