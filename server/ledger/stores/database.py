"""A database as far as it is read, whichever it is."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class StatementRows(Protocol):
    """What a statement comes to."""

    def __iter__(self) -> Iterator[Any]: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class JournalDatabase(Protocol):
    """One that is read."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> StatementRows: ...

    def stream(self, statement: str, *values: object) -> Iterator[Any]:
        """The rows one after the other, for more of them than memory has room for."""
