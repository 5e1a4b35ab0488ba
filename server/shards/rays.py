"""Shards as actors of Ray.

Each new actor goes to the node with the fewest shards. Ray's own SPREAD ignores what nodes have, so that a
replaced shard may land where all others are. Ray executes what one process sends to an actor in order, and
reports a lost actor. Nothing else of Ray is used: a restarted actor would begin with its constructor, and the
journal has the true state.
"""

import logging
import os
import pickle
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from edgeflock.server.descent import ShardStatus, VectorsLost, VectorState
from edgeflock.server.shards.sharded import Order, Shard
from edgeflock.shared.errors import ConfigError, EdgeflockError

log = logging.getLogger(__name__)

_MAX_PENDING = 4
"""The most messages that a shard may be behind. Beyond that, `send` waits."""

_CONNECT_SECONDS = 5.0
"""Seconds that a cluster may take to accept a connection."""

_ANSWER_SECONDS = 300.0
"""Seconds that shards may take to begin, or to answer. A shard that takes longer hangs, and is lost."""


class _Actor:
    """The shard in a process of Ray's."""

    def __init__(self) -> None:
        self._shard: Shard | None = None

    def begin(self, state: VectorState) -> ShardStatus:
        self._shard = None  # so that there is room for the next one
        self._shard = Shard(state)
        part, node = self._shard.part, ray.get_runtime_context().get_node_id()
        return ShardStatus(part.theta.size, part.nbytes, node, os.getpid())

    def execute(self, orders: bytes) -> Any:
        assert self._shard is not None, "it has begun"
        return self._shard.execute(pickle.loads(orders))


class RayPlacement:
    """The `Placement` on Ray. Calls must not overlap."""

    def __init__(self) -> None:
        self.status: Sequence[ShardStatus] = ()
        self._actors: list[Any] = []
        self._nodes: list[str] = []
        """The node of each actor."""
        self._pending: list[deque[Any]] = []
        self._lost = ""
        """Why a shard is lost. Empty: none is."""

    def begin(self, states: Sequence[VectorState]) -> None:
        self._lost, self._pending = "", [deque() for _ in states]
        if len(self._actors) != len(states):
            self.close()
            for _ in states:
                self._nodes.append(_node_of_fewest(self._nodes))
                self._actors.append(_create_actor(self._nodes[-1]))
        try:
            begun = [actor.begin.remote(state) for actor, state in zip(self._actors, states, strict=True)]
            for shard, (state, status) in enumerate(zip(states, begun, strict=True)):
                try:
                    ray.get(status, timeout=_ANSWER_SECONDS)
                except RayTaskError:
                    raise
                except RayError:  # the other shards keep their processes
                    ray.kill(self._actors[shard])
                    others = [*self._nodes[:shard], *self._nodes[shard + 1 :]]
                    self._nodes[shard] = _node_of_fewest(others)
                    self._actors[shard] = _create_actor(self._nodes[shard])
                    begun[shard] = self._actors[shard].begin.remote(state)
            self.status = ray.get(begun, timeout=_ANSWER_SECONDS)
            self._nodes = [status.node for status in self.status]
        except RayError as error:
            raise self._record_loss(error) from error

    def send(self, orders: Mapping[int, Sequence[Order]]) -> None:
        if self._lost:
            return
        try:
            for shard, those in orders.items():
                self._pending[shard].append(self._execute(shard, those))
            for pending in self._pending:
                while len(pending) > _MAX_PENDING:
                    ray.get(pending.popleft(), timeout=_ANSWER_SECONDS)
        except RayError as error:
            self._record_loss(error)

    def ask(self, orders: Mapping[int, Sequence[Order]]) -> dict[int, Any]:
        self.check()
        try:
            refs = [self._execute(shard, those) for shard, those in orders.items()]
            answers = dict(zip(orders, ray.get(refs, timeout=_ANSWER_SECONDS), strict=True))
        except RayError as error:
            raise self._record_loss(error) from error
        for shard in orders:  # an actor that has answered has done all earlier orders
            self._pending[shard].clear()
        return answers

    def check(self) -> None:
        """Raises VectorsLost if a loss is known by now."""
        if self._lost:
            raise VectorsLost(self._lost)
        done = [pending[0] for pending in self._pending if pending]
        ready, _ = ray.wait(done, num_returns=len(done), timeout=0) if done else ([], [])
        try:
            ray.get(ready)
        except RayError as error:
            raise self._record_loss(error) from error

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        self._actors, self._nodes, self.status = [], [], ()

    def _execute(self, shard: int, orders: Sequence[Order]) -> Any:
        return self._actors[shard].execute.remote(pickle.dumps(orders, protocol=5))

    def _record_loss(self, error: RayError) -> VectorsLost:
        """The loss of a shard. Raises a shard's own exception instead, since it would come again."""
        if isinstance(error, RayTaskError):
            raise error
        text = str(error).strip().partition("\n")[0]
        if isinstance(error, GetTimeoutError):
            text = f"no answer for {_ANSWER_SECONDS:g} s"
        self._lost = f"a shard is lost: {text}"
        return VectorsLost(self._lost)


def _node_of_fewest(occupied: Sequence[str]) -> str:
    """The living node that occurs least in `occupied`."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    living: list[str] = sorted(node["NodeID"] for node in nodes if node["Alive"])
    return min(living, key=occupied.count)


def _create_actor(node: str) -> Any:
    """An actor on this node; lost if the node is gone. Ray ignores soft affinity of actors without a CPU."""
    affinity = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(_Actor).options(num_cpus=0, max_restarts=0, scheduling_strategy=affinity).remote()


@contextmanager
def ray_placement(address: str) -> Iterator[RayPlacement]:
    """Shards in the Ray cluster at an address, of which this machine is a node.

    With "", a cluster on this machine for as long as the context lasts. Raises ConfigError, or EdgeflockError
    if this machine is too slow for one.
    """
    if address and address != "auto":
        _check_address(address)
    logging.getLogger("ray").setLevel(logging.ERROR)  # errors that matter are raised
    local: dict[str, Any] = {} if address else {"include_dashboard": False}
    try:
        ray.init(
            address=address or "local",
            namespace="edgeflock",
            log_to_driver=False,
            configure_logging=False,
            **local,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ConfigError(_unreachable(address, error)) from error
    except Exception as error:  # Ray has no own exception for a slow node
        ray.shutdown()
        reason = str(error).strip().partition("\n")[0]
        raise EdgeflockError(
            f"Ray does not start: {reason} Start again when this machine has less load"
        ) from error
    placement = RayPlacement()
    try:
        yield placement
    finally:
        placement.close()
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raises ConfigError if nothing listens there. Ray itself would take minutes to notice."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise ConfigError(_unreachable(address, error)) from error


def _unreachable(address: str, error: Exception) -> str:
    failure = f"scale.ray = {address!r}: no Ray is found there" if address else "Ray does not start"
    return f"{failure}: {error}"
