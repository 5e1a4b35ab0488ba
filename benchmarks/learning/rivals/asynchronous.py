"""Clients that train at any time: FedBuff, FedAsync, and single gradients with momentum."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import ClassVar

import numpy as np

from benchmarks.learning.rivals.channel import Vector
from benchmarks.learning.rivals.federation import Client, Federation


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a client has come to."""

    staleness: int
    start: Vector
    change: Vector
    """As it has arrived."""


def arrivals(federation: Federation, rate: float, steps: int, epochs: int, training: int) -> "Arrivals":
    """Changes as they arrive of `training` clients at a time, each of so many steps of SGD. 0: of all."""
    return Arrivals(
        federation, rate, steps, epochs, min(training or len(federation.clients), len(federation.clients))
    )


class Arrivals:
    """A queue of clients by the virtual time when they end.

    A client that ends is replaced by any idle one.
    """

    def __init__(self, federation: Federation, rate: float, steps: int, epochs: int, training: int) -> None:
        self._federation, self._rate, self._steps, self._epochs = federation, np.float32(rate), steps, epochs
        order = federation.random.permutation(len(federation.clients)).tolist()
        self._idle = order[training:]
        self._ends: list[tuple[float, int, int, Vector]] = []
        for number in order[:training]:
            self._begin(number, 0, federation.theta)

    def next(self, version: int) -> Arrival:
        """What comes next, while the server is at `version`. Then call `follow`."""
        federation = self._federation
        federation.seconds, number, base, start = heappop(self._ends)
        client = federation.clients[number]
        end = client.descend(start, steps := self._count(client), self._move)
        change = federation.channel.up(base, end - start, *client.reported(steps))
        if not federation.draw_crash(number, steps):
            self._idle.append(number)
        return Arrival(version - base, start, change)

    def follow(self, version: int, theta: Vector) -> None:
        """Another begins from this model, or the same one; nobody if all the others train."""
        if not self._idle:
            return
        following = self._idle.pop(int(self._federation.random.integers(len(self._idle))))
        self._begin(following, version, theta)

    def _begin(self, number: int, version: int, theta: Vector) -> None:
        client = self._federation.clients[number]
        start = self._federation.channel.down(number, version, theta)
        ends = self._federation.seconds + client.seconds(self._count(client))
        heappush(self._ends, (ends, number, version, start))

    def _count(self, client: Client) -> int:
        return client.steps(self._steps, self._epochs)

    def _move(self, theta: Vector, gradient: Vector) -> None:
        theta -= self._rate * gradient


@dataclass(frozen=True, slots=True)
class FedBuff:
    """FedBuff: the weighted mean of K changes, whenever there are as many.

    theta <- theta + (server_rate / K) sum_K change_k / sqrt(1 + staleness_k)

    J. Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022, algorithm 1
    and section 3.2 for the weights.
    """

    rate: float
    epochs: int = 1
    steps: int = 0
    buffer: int = 10
    """K."""
    training: int = 0
    """Clients that train at any time; 0: all."""
    server_rate: float = 1.0
    values: str = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each K changes."""
        queue = arrivals(federation, self.rate, self.steps, self.epochs, self.training)
        theta, version = federation.theta, 0
        while True:
            total = np.zeros_like(theta)
            for missing in reversed(range(self.buffer)):
                one = queue.next(version)
                total += np.float32(1 / math.sqrt(1 + one.staleness)) * one.change
                if not missing:
                    theta = theta + np.float32(self.server_rate / self.buffer) * total
                    version += 1
                queue.follow(version, theta)
            yield theta


@dataclass(frozen=True, slots=True)
class FedAsync:
    """theta <- (1 - a) theta + a theta_k, where a = mixing / sqrt(1 + staleness).

    C. Xie, S. Koyejo and I. Gupta, "Asynchronous federated optimization", 2019, algorithm 1, with section
    5.2's polynomial staleness at 1/2.
    """

    rate: float
    epochs: int = 1
    steps: int = 0
    training: int = 0
    mixing: float = 0.6
    values: str = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each change."""
        queue = arrivals(federation, self.rate, self.steps, self.epochs, self.training)
        theta, version = federation.theta, 0
        while True:
            one = queue.next(version)
            weight = np.float32(self.mixing / math.sqrt(1 + one.staleness))
            theta = theta + weight * (one.start + one.change - theta)
            version += 1
            queue.follow(version, theta)
            yield theta


@dataclass(frozen=True, slots=True)
class HeavyBall:
    """v <- momentum v - rate g / max(1, staleness); theta <- theta + v, by single gradients at any time.

    B. Polyak, 1964, with W. Zhang et al., "Staleness-aware async-SGD", IJCAI 2016, equation 6, for the
    division. Running statistics go by the part of their change that the weight says.
    """

    rate: float
    momentum: float = 0.9
    values: str = "f32"
    central: ClassVar[bool] = False

    def models(self, federation: Federation) -> Iterator[Vector]:
        """Yield theta after each gradient."""
        queue = arrivals(federation, self.rate, 1, 0, 0)
        theta, version, size = federation.theta.copy(), 0, federation.parameters
        velocity = np.zeros(size, np.float32)
        while True:
            one = queue.next(version)
            arrived = np.float32(1 / max(1, one.staleness)) * one.change
            velocity = np.float32(self.momentum) * velocity + arrived[:size]
            theta = theta + np.concatenate((velocity, arrived[size:]))
            version += 1
            yield theta
            queue.follow(version, theta)
