"""`Vectors` in model shards: each order goes to the shards that hold its entries, in the order of versions.

Nothing is computed here. What depends on all of theta comes from the shards' answers, in an order that gives
the same bits as one process. Each slice passes the sum of squares to the next.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.descent import Index, OptimizerMemory, Part, ShardStatus, Step, VectorState
from edgeflock.shared.errors import ConfigError

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


Vector = NDArray[np.float32]
Entries = tuple[Index, Vector]
"""(indices, values), by the indices of a slice."""


class Slices:
    """The slices of P trained parameters. The running statistics after them belong to the last slice."""

    def __init__(self, trained: int, buffers: int, count: int) -> None:
        """`count` is at most P, so that no slice is empty."""
        self.bounds = np.array([trained * i // count for i in range(count + 1)])
        """The bounds of trained slices: [count + 1]."""
        self._ends = self.bounds.copy()
        self._ends[-1] += buffers
        """The bounds in all of theta."""

    def whole(self, theta: Vector) -> list[Vector]:
        """The slices of a vector of P + B numbers, as views."""
        return [theta[start:stop] for start, stop in pairwise(self._ends)]

    def trained(self, vector: Vector) -> list[Vector]:
        """The slices of P numbers or rows, as views."""
        return [vector[start:stop] for start, stop in pairwise(self.bounds)]

    def entries(self, indices: Index, values: Vector) -> list[Entries]:
        """Split an update by slices. Its indices increase strictly, or are slice(None) for all of P."""
        if isinstance(indices, slice):
            return [(slice(None), part) for part in self.trained(values)]
        places = self.split(indices)
        ends = np.cumsum([place.size for place in places])
        return list(zip(places, np.split(values, ends[:-1]), strict=True))

    def split(self, indices: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Split indices of all of theta by slices. They must not decrease."""
        parts = np.split(indices, np.searchsorted(indices, self.bounds[1:-1]))
        return [part - start for part, start in zip(parts, self.bounds, strict=False)]

    def states(self, state: VectorState) -> list[VectorState]:
        """The initial states of the parts that together equal `state`."""
        theta, average, memory, buffers, regime, start = state
        count = len(self.bounds) - 1
        absent: list[Vector | None] = [None] * count
        averages = absent if average is None else self.whole(average)
        numbers = absent if memory.numbers is None else self.trained(memory.numbers)
        gathered = absent if memory.gathered is None else self.trained(memory.gathered)
        return [
            VectorState(
                theta,
                averages[i],
                OptimizerMemory(memory.kind, numbers[i], gathered[i], memory.waiting),
                buffers if i == count - 1 else 0,
                regime,
                start,
            )
            for i, theta in enumerate(self.whole(theta))
        ]


_QUEUE_LIMIT = 1 << 20
"""Entries that are queued before they are sent. Each order counts as a thousand."""
_ORDER_COST = 1000


class Sharded:
    """Implements `Vectors` (descent/part.py)."""

    def __init__(
        self, placement: Placement, count: int, state: VectorState, recent: Iterable[Step] = ()
    ) -> None:
        """`recent` are the steps after `state.start`. Raises VectorsLost; ConfigError for too many."""
        if count > state.trained:
            raise ConfigError(
                f"scale.shards = {count}: the model has {state.trained} trained parameters; lower it"
            )
        self._slices = Slices(state.trained, state.buffers, count)
        self._placement = placement
        self._outbox: list[list[Order]] = [[] for _ in range(count)]
        self._queued = 0
        """The number of queued entries."""
        placement.begin(self._slices.states(state))
        for step in recent:
            self._queue_entries("touch", step.indices, step.delta)

    @property
    def shard_statuses(self) -> Sequence[ShardStatus]:
        return self._placement.status

    # Reading

    def read(self, indices: Index) -> Vector:
        if isinstance(indices, slice):
            return np.concatenate(self._ask("read", indices))
        order = np.argsort(indices, kind="stable")
        places = self._slices.split(indices[order])
        orders = {shard: ("read", (place,)) for shard, place in enumerate(places) if place.size}
        answers = self._ask_some(orders)
        found = np.empty(indices.size, np.float32)
        if orders:
            found[order] = np.concatenate([answers[shard] for shard in orders])
        return found

    @property
    def average(self) -> Vector | None:
        return _join(self._ask("average"))

    @property
    def memory(self) -> OptimizerMemory:
        parts: list[OptimizerMemory] = self._ask("memory")
        numbers, gathered = _join([part.numbers for part in parts]), _join([part.gathered for part in parts])
        return OptimizerMemory(parts[0].kind, numbers, gathered)

    def gathered_indices(self) -> NDArray[np.int64]:
        parts = self._ask("gathered_indices")
        return np.concatenate([part + start for part, start in zip(parts, self._slices.bounds, strict=False)])

    def max_magnitude(self) -> float:
        # As one process does: it compares bits, and NaN is above all numbers.
        return float(np.array(self._ask("max_magnitude")).max())

    # A step

    def descend(self, indices: Index, delta: Vector, base: int, weight: np.float32, unit: int) -> None:
        self._queue_entries("descend", indices, delta, base, weight, unit)

    def weigh(
        self, indices: Index, delta: Vector, base: int, weight: np.float32, unit: int, waiting: int
    ) -> None:
        self._queue_entries("weigh", indices, delta, base, weight, unit, waiting)

    def squares(self, total: float) -> float:
        for shard in range(len(self._outbox)):
            total = self._ask_some({shard: ("squares", (total,))})[shard]
        return total

    def fits(self, rate: np.float32, clip_factor: np.float32 | None, limit: float) -> bool:
        return all(self._ask("fits", rate, clip_factor, limit))

    def step(self, rate: np.float32, clip_factor: np.float32 | None) -> None:
        self._queue("step", rate, clip_factor)

    def follow(self, statistics: Vector, lag: int) -> None:
        self._outbox[-1].append(("follow", (statistics, lag)))

    def update_average(self, weight: np.float32) -> None:
        self._queue("update_average", weight)

    # Sending

    def flush(self) -> None:
        """Send the queued orders. Raises VectorsLost if a loss is known."""
        self._send()
        self._placement.check()

    def _send(self) -> None:
        queued = {shard: orders for shard, orders in enumerate(self._outbox) if orders}
        self._outbox, self._queued = [[] for _ in self._outbox], 0
        if queued:
            self._placement.send(queued)

    def _queue(self, name: str, *arguments: Any) -> None:
        for orders in self._outbox:
            orders.append((name, arguments))
        self._add_cost(_ORDER_COST)

    def _queue_entries(self, name: str, indices: Index, values: Vector, *arguments: Any) -> None:
        """Queue an order to all shards: each counts versions, even without entries of this one."""
        for orders, entries in zip(self._outbox, self._slices.entries(indices, values), strict=True):
            orders.append((name, (*entries, *arguments)))
        self._add_cost(_ORDER_COST + values.size)

    def _add_cost(self, cost: int) -> None:
        self._queued += cost
        if self._queued > _QUEUE_LIMIT:
            self._send()

    def _ask(self, name: str, *arguments: Any) -> list[Any]:
        """The answers of all shards, in order."""
        answers = self._ask_some({shard: (name, arguments) for shard in range(len(self._outbox))})
        return [answers[shard] for shard in range(len(self._outbox))]

    def _ask_some(self, orders: dict[int, Order]) -> dict[int, Any]:
        """The answers of these shards, after their earlier orders. Raises VectorsLost."""
        queued = {shard: [*self._outbox[shard], order] for shard, order in orders.items()}
        for shard in orders:
            self._outbox[shard] = []
        return self._placement.ask(queued)


def _join(parts: Sequence[Vector | None]) -> Vector | None:
    """Return the slices as one vector, or None if there are none."""
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if present else None
