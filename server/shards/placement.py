"""The interface between the orders to model shards and what runs the shards.

An order is the name of a method of a part (descent/part.py) and its arguments. A shard executes orders one
after the other, as they were sent, and answers with the result of the last one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from edgeflock.server.descent import Part, ShardStatus, VectorState

Order = tuple[str, tuple[Any, ...]]


class Placement(Protocol):
    """Runs shards. After one is lost, `ask` and `check` raise VectorsLost until the next `begin`."""

    @property
    def status(self) -> Sequence[ShardStatus]: ...

    def begin(self, states: Sequence[VectorState]) -> None:
        """Replace the shards by new ones, one for each state. Raises VectorsLost."""

    def send(self, orders: Mapping[int, Sequence[Order]]) -> None:
        """Send orders to these shards. It does not wait for them, and never fails."""

    def ask(self, orders: Mapping[int, Sequence[Order]]) -> dict[int, Any]:
        """Send orders, and return the result of each shard's last order."""

    def check(self) -> None:
        """Raise VectorsLost if a loss is known by now."""

    def close(self) -> None: ...


class Shard:
    """One part of the parameters, and the orders on it."""

    def __init__(self, state: VectorState) -> None:
        """Copies the state, since received arrays may be read-only."""
        memory = replace(
            state.memory, numbers=_copy(state.memory.numbers), gathered=_copy(state.memory.gathered)
        )
        self.part = Part(
            state._replace(theta=np.array(state.theta), average=_copy(state.average), memory=memory)
        )

    @np.errstate(over="ignore", invalid="ignore")
    def execute(self, orders: Sequence[Order]) -> Any:
        """Execute orders; return the result of the last one."""
        answer = None
        for name, arguments in orders:
            member = getattr(self.part, name)
            answer = member(*arguments) if callable(member) else member
        return answer


def _copy(vector: Any) -> Any:
    return None if vector is None else np.array(vector)
