"""A database as far as it is read, whichever it is."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Rows(Protocol):
    """What a statement comes to."""

    def __iter__(self) -> Iterator[Any]: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Database(Protocol):
    """One that is read."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows: ...

    def stream(self, statement: str, *values: object) -> Iterator[Any]:
        """The rows one after the other, for more of them than memory has room for."""
