"""The interface of a database that a journal is read from, for both kinds."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class StatementRows(Protocol):
    """The result of a statement."""

    def __iter__(self) -> Iterator[Any]: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class JournalDatabase(Protocol):
    """A database for reading."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> StatementRows: ...

    def stream(self, statement: str, *values: object) -> Iterator[Any]:
        """The rows one at a time, for results that do not fit in memory."""
